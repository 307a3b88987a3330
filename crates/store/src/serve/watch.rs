//! Watches: any number of them on one stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Status, Streaming};

use super::read::Span;
use super::{Parts, header, status};
use crate::etcd::proto::event::EventType;
use crate::etcd::proto::watch_request::RequestUnion;
use crate::etcd::proto::{self, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::{Event, EventBatch, Revision, StoreError};

/// Responses that may wait for a slow client; then its watches wait.
const WAITING_RESPONSES: usize = 64;

/// Watches on one stream.
const MAX_WATCHES: usize = 4096;

/// How often a quiet watch that wants to know says how far it has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// How long a question for progress waits for all watches, and how often it looks.
const PROGRESS_PATIENCE: Duration = Duration::from_secs(10);
const PROGRESS_PAUSE: Duration = Duration::from_millis(1);

/// The number under which progress of all watches is told.
const ALL_WATCHES: i64 = -1;

/// Responses to come, in the order in which they were made.
type Responses = Sender<Result<WatchResponse, Status>>;

/// The watches of one stream; dropping it ends them.
struct Session {
    parts: Arc<Parts>,
    responses: Responses,
    watches: HashMap<i64, Running>,
    last: i64,
}

struct Running {
    complete_to: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// One watch.
struct Watcher {
    parts: Arc<Parts>,
    responses: Responses,
    id: i64,
    span: Span,
    request: WatchCreateRequest,
    complete_to: Arc<AtomicU64>,
}

/// Answers a stream of requests until the client goes.
pub fn open(
    parts: Arc<Parts>,
    mut requests: Streaming<WatchRequest>,
) -> impl Stream<Item = Result<WatchResponse, Status>> + Send {
    let (responses, answers) = channel(WAITING_RESPONSES);
    tokio::spawn(async move {
        let mut session = Session {
            parts,
            responses: responses.clone(),
            watches: HashMap::new(),
            last: 0,
        };
        loop {
            let request = tokio::select! {
                request = requests.message() => request,
                () = responses.closed() => return,
            };
            let Ok(Some(WatchRequest { request_union })) = request else {
                return;
            };
            if session.take(request_union).await.is_none() {
                return;
            }
        }
    });
    futures_util::stream::unfold(answers, async |mut answers| Some((answers.recv().await?, answers)))
}

impl Session {
    /// `None` when nobody listens any more.
    async fn take(&mut self, request: Option<RequestUnion>) -> Option<()> {
        match request {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => {
                if self.watches.remove(&cancel.watch_id).is_some() {
                    let canceled = WatchResponse {
                        header: header(self.parts.store.snapshot().revision()),
                        watch_id: cancel.watch_id,
                        canceled: true,
                        ..WatchResponse::default()
                    };
                    self.responses.send(Ok(canceled)).await.ok()?;
                }
                Some(())
            }
            Some(RequestUnion::ProgressRequest(_)) => self.tell_progress().await,
            None => Some(()),
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Option<()> {
        self.watches.retain(|_, running| !running.task.is_finished());
        let id = match request.watch_id {
            0 => {
                self.last += 1;
                self.last
            }
            id => id,
        };
        let current = self.parts.store.snapshot().revision();
        let created = |reason: &str| WatchResponse {
            header: header(current),
            watch_id: id,
            created: true,
            canceled: !reason.is_empty(),
            cancel_reason: reason.to_owned(),
            ..WatchResponse::default()
        };
        let refusal = match () {
            () if !request.filters.is_empty() => "watches are not filtered by the kind of event",
            () if self.watches.contains_key(&id) => "etcdserver: duplicate watch ID provided on the WatchStream",
            () if self.watches.len() >= MAX_WATCHES => "too many watches on one stream",
            () => "",
        };
        let span = Span::parse(request.key.clone(), request.range_end.clone());
        let span = match (span, refusal) {
            (Ok(span), "") => span,
            (Ok(_), refusal) => return self.responses.send(Ok(created(refusal))).await.ok(),
            (Err(refusal), _) => return self.responses.send(Ok(created(refusal.message()))).await.ok(),
        };
        self.responses.send(Ok(created(""))).await.ok()?;
        let after = match Revision::try_from(request.start_revision) {
            Ok(0) | Err(_) => current,
            Ok(start) => start - 1,
        };
        let complete_to = Arc::new(AtomicU64::new(after));
        let watcher = Watcher {
            parts: self.parts.clone(),
            responses: self.responses.clone(),
            id,
            span,
            request,
            complete_to: complete_to.clone(),
        };
        let task = tokio::spawn(watcher.run(after));
        self.watches.insert(id, Running { complete_to, task });
        Some(())
    }

    /// Tells a revision that all watches of the stream have come to.
    async fn tell_progress(&mut self) -> Option<()> {
        let current = self.parts.snapshot(0).await.ok()?.revision();
        let until = Instant::now() + PROGRESS_PATIENCE;
        let is_behind =
            |running: &Running| !running.task.is_finished() && running.complete_to.load(Ordering::Acquire) < current;
        while self.watches.values().any(is_behind) {
            if Instant::now() > until {
                // Saying nothing is what etcd does while watches are behind; the client asks again.
                return Some(());
            }
            sleep(PROGRESS_PAUSE).await;
        }
        let progress = WatchResponse {
            header: header(current),
            watch_id: ALL_WATCHES,
            ..WatchResponse::default()
        };
        self.responses.send(Ok(progress)).await.ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    async fn run(self, after: Revision) {
        let mut events = match self.parts.store.watch(after).await {
            Ok(events) => events,
            Err(error) => return self.end(&error).await,
        };
        loop {
            let batch = match timeout(PROGRESS_EVERY, events.next()).await {
                Ok(Ok(batch)) => batch,
                Ok(Err(error)) => return self.end(&error).await,
                Err(_) if self.request.progress_notify => EventBatch {
                    events: Vec::new(),
                    complete_to: self.complete_to.load(Ordering::Acquire),
                },
                Err(_) => continue,
            };
            let quiet = batch.events.is_empty() && self.request.progress_notify;
            let Ok(response) = self.response(&batch) else {
                return;
            };
            if (quiet || !response.events.is_empty()) && self.responses.send(Ok(response)).await.is_err() {
                return;
            }
            self.complete_to.store(batch.complete_to, Ordering::Release);
        }
    }

    fn response(&self, batch: &EventBatch) -> Result<WatchResponse, Status> {
        let concerned = batch.events.iter().filter(|event| self.span.holds(&event.key));
        let events: Result<Vec<proto::Event>, Status> = concerned.map(|event| self.event(event)).collect();
        Ok(WatchResponse {
            header: header(batch.complete_to),
            watch_id: self.id,
            events: events?,
            ..WatchResponse::default()
        })
    }

    fn event(&self, event: &Event) -> Result<proto::Event, Status> {
        let previous = event.previous.as_deref().filter(|_| self.request.prev_kv);
        let prev_kv = previous.map(|entry| self.parts.key_value(entry)).transpose()?;
        let (kind, kv) = match &event.current {
            Some(entry) => (EventType::Put, self.parts.key_value(entry)?),
            None => (
                EventType::Delete,
                KeyValue {
                    key: event.key.as_bytes().into(),
                    mod_revision: event.revision as i64,
                    ..KeyValue::default()
                },
            ),
        };
        Ok(proto::Event {
            r#type: kind as i32,
            kv: Some(kv),
            prev_kv,
        })
    }

    /// Tells the client why its watch is over.
    async fn end(self, error: &StoreError) {
        let compact_revision = match error {
            StoreError::Compacted { oldest, .. } => *oldest as i64,
            _ => 0,
        };
        let canceled = WatchResponse {
            header: header(self.parts.store.snapshot().revision()),
            watch_id: self.id,
            canceled: true,
            compact_revision,
            cancel_reason: status(error).message().to_owned(),
            ..WatchResponse::default()
        };
        // A client that is gone needs no reason.
        let _ = self.responses.send(Ok(canceled)).await;
    }
}
