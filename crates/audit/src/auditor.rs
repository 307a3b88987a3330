//! Hands events to backends and counts what becomes of them.

use std::io;
use std::sync::Arc;

use metrics::{Counter, Page, head, labels, sample};
use tokio::sync::mpsc;

use crate::batch::{self, BatchOptions, Sink};
use crate::event::omit_managed_fields;
use crate::{Event, Level, LogFile, Policy, Treatment, TruncateOptions};

/// A policy and where its events go.
pub struct Auditor {
    pub policy: Policy,
    backends: Vec<Backend>,
    figures: Arc<AuditorFigures>,
}

struct Backend {
    queue: mpsc::Sender<Arc<Event>>,
    figures: Arc<BackendFigures>,
}

/// What was noted and what was lost, under upstream's names.
pub struct AuditorFigures {
    events: Counter,
    levels: [(Level, Counter); 4],
    backends: parking_lot::Mutex<Vec<Arc<BackendFigures>>>,
}

/// What one backend lost.
pub(crate) struct BackendFigures {
    name: &'static str,
    lost: Counter,
}

impl BackendFigures {
    pub fn lost(&self, events: u64) {
        self.lost.add(events);
    }
}

impl Auditor {
    pub fn new(policy: Policy) -> Auditor {
        let levels = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];
        Auditor {
            policy,
            backends: Vec::new(),
            figures: Arc::new(AuditorFigures {
                events: Counter::new(),
                levels: levels.map(|level| (level, Counter::new())),
                backends: parking_lot::Mutex::default(),
            }),
        }
    }

    /// Adds a file. It is written by a thread of its own.
    pub fn add_log(&mut self, log: LogFile) -> io::Result<()> {
        let (events, figures) = self.add_backend("log", log.buffer_size());
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || log.run(events, &figures))?;
        Ok(())
    }

    /// Adds somebody who is sent batches. Must be called within a runtime.
    pub fn add_sink(&mut self, sink: Arc<dyn Sink>, options: BatchOptions, truncate: TruncateOptions) {
        let (events, figures) = self.add_backend("webhook", options.buffer_size);
        tokio::spawn(batch::run(events, sink, options, truncate, figures));
    }

    fn add_backend(
        &mut self,
        name: &'static str,
        buffer_size: usize,
    ) -> (mpsc::Receiver<Arc<Event>>, Arc<BackendFigures>) {
        let (queue, events) = mpsc::channel(buffer_size.max(1));
        let figures = Arc::new(BackendFigures {
            name,
            lost: Counter::new(),
        });
        self.figures.backends.lock().push(figures.clone());
        let backend = Backend {
            queue,
            figures: figures.clone(),
        };
        self.backends.push(backend);
        (events, figures)
    }

    pub fn figures(&self) -> Arc<AuditorFigures> {
        self.figures.clone()
    }

    /// Counts a decision of the policy.
    pub fn decided(&self, level: Level) {
        let levels = self.figures.levels.iter().find(|(known, _)| *known == level);
        if let Some((_, counter)) = levels {
            counter.add(1);
        }
    }

    /// Notes an event. Never waits: what a backend has no room for is lost to it and counted.
    pub fn record(&self, treatment: &Treatment, mut event: Event) {
        if treatment.omit_managed_fields {
            let objects = [&mut event.request_object, &mut event.response_object];
            objects.into_iter().flatten().for_each(omit_managed_fields);
        }
        self.figures.events.add(1);
        let event = Arc::new(event);
        for backend in &self.backends {
            if backend.queue.try_send(event.clone()).is_err() {
                backend.figures.lost(1);
            }
        }
    }
}

impl Page for AuditorFigures {
    fn write(&self, text: &mut String) {
        let name = "apiserver_audit_event_total";
        head(text, name, "counter", "[ALPHA] Audit events generated.");
        sample(text, name, "", self.events.get());
        let name = "apiserver_audit_level_total";
        head(text, name, "counter", "[ALPHA] Audited requests, by audit level.");
        for (level, counter) in &self.levels {
            sample(text, name, &labels(&[("level", level.name())]), counter.get());
        }
        let name = "apiserver_audit_error_total";
        head(text, name, "counter", "[ALPHA] Audit events that a backend dropped.");
        for backend in self.backends.lock().iter() {
            sample(text, name, &labels(&[("plugin", backend.name)]), backend.lost.get());
        }
    }
}

#[cfg(test)]
mod tests;
