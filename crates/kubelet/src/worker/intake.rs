//! Taking in what a worker is told.

use std::sync::Arc;
use std::time::Duration;

use super::message::{Done, Message};
use super::tasks::TaskId;
use super::{Worker, probes, volumes};
use crate::moment::Moment;
use crate::observed::{Instance, Sandbox};
use crate::plan::{Applied, Stop, Task};
use crate::pod::resources::compute_in_pod;
use crate::probe::{ProbeKind, Report};

impl Worker {
    pub(super) fn take_input(&mut self) {
        let input = self.inbox.input.borrow_and_update().clone();
        if input.gone {
            self.progress.stop = Some(Stop::Gone);
        }
        self.reporter.saw(&input.object.raw);
        let mut pod = input.object.pod.clone();
        if pod.status.start_time.is_none() {
            Arc::make_mut(&mut pod).status.start_time = Some(self.first_seen);
        }
        self.allocate(&mut pod);
        let (old, new) = (&self.pod.metadata, &pod.metadata);
        let changed =
            (old.generation, &old.labels, &old.annotations) != (new.generation, &new.labels, &new.annotations);
        self.pod = pod;
        if changed {
            // What failed may succeed now.
            self.progress.failed.clear();
            for container in self.progress.containers.values_mut() {
                container
                    .failure
                    .iter_mut()
                    .for_each(|failure| failure.delay = Duration::ZERO);
            }
            self.refresh_volumes_soon();
        }
        if self.progress.stop != Some(Stop::Gone) {
            let metadata = &self.pod.metadata;
            self.shared.objects.set(
                &metadata.uid,
                &metadata.namespace,
                volumes::referenced_objects(&self.pod),
            );
        }
    }

    pub(super) fn take(&mut self, message: Message) {
        match message {
            Message::Container(instance) => self.take_container(instance),
            Message::Sandbox(sandbox) => self.take_sandbox(sandbox),
            Message::SandboxEnded(id) => self.observed.end_sandbox(&id),
            Message::Inspect { id, object } => self.inspect(id, object),
            Message::Vanished(id) => self.forget(&id),
            Message::Probe {
                container,
                container_id,
                kind,
                report,
            } => self.take_probe(&container, &container_id, kind, &report),
            Message::Evict(message) => self.evict(message),
            Message::ObjectsChanged => self.objects_changed(),
            Message::Done(task, id, done) => self.take_end(task, id, done),
            Message::StatusWritten(result) => self.reporter.done(result, Moment::now()),
        }
    }

    fn take_probe(&mut self, container: &str, container_id: &str, kind: ProbeKind, report: &Report) {
        match report {
            Report::Unhealthy(message) => {
                self.shared.warning(&self.pod, container, "Unhealthy", message.clone());
            }
            Report::Warned(message) => {
                self.shared
                    .warning(&self.pod, container, "ProbeWarning", message.clone());
            }
            Report::Verdict(_) => {}
        }
        probes::record(&mut self.progress, container, container_id, kind, report);
    }

    fn take_end(&mut self, task: Task, id: TaskId, done: Done) {
        if !self.tasks.is_current_end(&task, id) {
            return;
        }
        let busy = self.progress.busy.remove(&task);
        self.settle_end(task, done);
        if busy.is_some_and(|busy| busy.overtaken) {
            self.objects_changed();
        }
    }

    fn evict(&mut self, message: String) {
        if self.view().is_ending() {
            return;
        }
        let stop = Stop::Evicted { message };
        self.announce_stop(&stop);
        self.progress.stop = Some(stop);
    }

    pub(super) fn take_container(&mut self, instance: Instance) {
        let starting = self.progress.is_starting(&instance.name);
        let progress = self.progress.container_mut(&instance.name);
        let latest = self.observed.latest(&instance.name);
        let newest = latest.is_none_or(|latest| latest.attempt <= instance.attempt);
        if newest && progress.verdicts.container_id != instance.id {
            progress.verdicts = probes::first_verdicts(&self.pod, &instance);
        }
        // What has ended does not run again; an answer that says so was overtaken.
        let known = self.observed.instance(&instance.id);
        if known.is_some_and(|known| known.exit().is_some() && instance.exit().is_none()) {
            return;
        }
        if newest && progress.applied.as_ref().map(|applied| &applied.id) != Some(&instance.id) {
            let known = self.pod.known_container(&instance.name);
            let known = known.filter(|known| known.container_id.ends_with(&instance.id));
            let before = known.and_then(|known| known.resources.as_ref());
            let before = before.map(|before| compute_in_pod(&self.pod, before));
            let compute = match starting {
                true => progress.starting_with,
                false => before,
            };
            progress.applied = compute.map(|compute| Applied {
                container: instance.name.clone(),
                id: instance.id.clone(),
                compute,
            });
        }
        if let (Some(exit), Some((kind, _))) = (instance.exit(), self.pod.container(&instance.name)) {
            let known = self.observed.instance(&instance.id);
            // What had ended when this kubelet started was counted by the one before it.
            if known.map_or(starting, |known| known.exit().is_none()) {
                self.shared.figures.container_ended(kind, exit.code, &exit.reason);
            }
        }
        self.observed.put_container(instance);
    }

    pub(super) fn take_sandbox(&mut self, sandbox: Sandbox) {
        let known = self.observed.sandboxes.iter().find(|known| known.id == sandbox.id);
        // A stopped sandbox has lost its addresses; the pod still shows them.
        let ips = match known {
            Some(known) if sandbox.ips.is_empty() => known.ips.clone(),
            _ => sandbox.ips.clone(),
        };
        self.observed.put_sandbox(Sandbox { ips, ..sandbox });
    }

    fn forget(&mut self, id: &str) {
        self.observed
            .containers
            .retain(|instance| instance.id != id && instance.sandbox_id != id);
        self.observed.sandboxes.retain(|sandbox| sandbox.id != id);
    }
}
