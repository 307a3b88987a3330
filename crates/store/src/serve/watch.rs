//! Watches: any number of them on one stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Status, Streaming};

use super::read::Span;
use super::{Parts, header, status};
use crate::etcd::proto::event::EventType;
use crate::etcd::proto::watch_create_request::FilterType;
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

/// The number under which progress of all watches is told, and that of a watch which was refused.
const ALL_WATCHES: i64 = -1;
const NO_WATCH: i64 = -1;

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
    /// Events up to this revision are none of its business.
    after: Revision,
    request: WatchCreateRequest,
    complete_to: Arc<AtomicU64>,
}

/// Why a watch ends, and where one may begin that misses nothing more.
struct End {
    why: String,
    compact_revision: i64,
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
        let current = self.parts.store.snapshot().revision();
        let span = match self.check(&request) {
            Ok(span) => span,
            Err(refusal) => {
                let refused = WatchResponse {
                    header: header(current),
                    watch_id: NO_WATCH,
                    created: true,
                    canceled: true,
                    cancel_reason: refusal.message().to_owned(),
                    ..WatchResponse::default()
                };
                return self.responses.send(Ok(refused)).await.ok();
            }
        };
        let id = match request.watch_id {
            0 => self.free_id(),
            id => id,
        };
        let created = WatchResponse {
            header: header(current),
            watch_id: id,
            created: true,
            ..WatchResponse::default()
        };
        self.responses.send(Ok(created)).await.ok()?;
        let after = match Revision::try_from(request.start_revision) {
            Ok(0) | Err(_) => current,
            Ok(start) => start - 1,
        };
        // A watch may begin in the future: what comes before that is left out.
        let from = after.min(current);
        let complete_to = Arc::new(AtomicU64::new(from));
        let watcher = Watcher {
            parts: self.parts.clone(),
            responses: self.responses.clone(),
            id,
            span,
            after,
            request,
            complete_to: complete_to.clone(),
        };
        let task = tokio::spawn(watcher.run(from, PROGRESS_EVERY));
        self.watches.insert(id, Running { complete_to, task });
        Some(())
    }

    fn check(&self, request: &WatchCreateRequest) -> Result<Span, Status> {
        if self.watches.contains_key(&request.watch_id) {
            let why = "etcdserver: duplicate watch ID provided on the WatchStream";
            return Err(Status::failed_precondition(why));
        }
        if self.watches.len() >= MAX_WATCHES {
            return Err(Status::resource_exhausted("too many watches on one stream"));
        }
        Span::parse(request.key.clone(), request.range_end.clone())
    }

    /// A number that no client has chosen.
    fn free_id(&mut self) -> i64 {
        loop {
            self.last += 1;
            if !self.watches.contains_key(&self.last) {
                return self.last;
            }
        }
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
    async fn run(self, from: Revision, progress_every: Duration) {
        if let Err(end) = self.follow(from, progress_every).await {
            self.end(end).await;
        }
    }

    /// Sends events until the client is gone.
    async fn follow(&self, from: Revision, progress_every: Duration) -> Result<(), End> {
        let mut events = self.parts.store.watch(from).await?;
        let mut progress_at = Instant::now() + progress_every;
        loop {
            let batch = match timeout_at(progress_at, events.next()).await {
                Ok(batch) => batch?,
                Err(_) => EventBatch {
                    events: Vec::new(),
                    complete_to: self.complete_to.load(Ordering::Acquire),
                },
            };
            let response = self.response(&batch)?;
            // Others' events come and go without a word, but not for ever.
            let is_due = Instant::now() >= progress_at;
            let tells = !response.events.is_empty() || (is_due && self.request.progress_notify);
            if tells && self.responses.send(Ok(response)).await.is_err() {
                return Ok(());
            }
            if tells || is_due {
                progress_at = Instant::now() + progress_every;
            }
            self.complete_to.store(batch.complete_to, Ordering::Release);
        }
    }

    fn response(&self, batch: &EventBatch) -> Result<WatchResponse, Status> {
        let concerned = batch.events.iter().filter(|event| self.concerns(event));
        let events: Result<Vec<proto::Event>, Status> = concerned.map(|event| self.event(event)).collect();
        Ok(WatchResponse {
            header: header(batch.complete_to),
            watch_id: self.id,
            events: events?,
            ..WatchResponse::default()
        })
    }

    fn concerns(&self, event: &Event) -> bool {
        let unwanted = match event.current {
            Some(_) => FilterType::Noput,
            None => FilterType::Nodelete,
        };
        event.revision > self.after && self.span.holds(&event.key) && !self.request.filters.contains(&(unwanted as i32))
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
    async fn end(self, end: End) {
        let canceled = WatchResponse {
            header: header(self.parts.store.snapshot().revision()),
            watch_id: self.id,
            canceled: true,
            compact_revision: end.compact_revision,
            cancel_reason: end.why,
            ..WatchResponse::default()
        };
        // A client that is gone needs no reason.
        let _ = self.responses.send(Ok(canceled)).await;
    }
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> End {
        let compact_revision = match &error {
            // Where a new watch may begin; of the state at `oldest` itself it is not known how it came about.
            StoreError::Compacted { oldest, .. } => *oldest as i64 + 1,
            _ => 0,
        };
        End {
            why: status(&error).message().to_owned(),
            compact_revision,
        }
    }
}

impl From<Status> for End {
    fn from(status: Status) -> End {
        End {
            why: status.message().to_owned(),
            compact_revision: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tokio::sync::mpsc::Receiver;
    use tokio::time::timeout;

    use super::*;
    use crate::etcd::{Codec, CodecError, Identity};
    use crate::serve::Server;
    use crate::{Store, Transaction, Write};

    const PATIENCE: Duration = Duration::from_secs(20);

    struct Unreadable;

    impl Codec for Unreadable {
        fn to_disk(&self, _: &str, _: &Bytes) -> Result<Bytes, CodecError> {
            Err(CodecError("nobody can read this".to_owned()))
        }

        fn from_disk(&self, _: &str, value: &Bytes) -> Result<Bytes, CodecError> {
            Ok(value.clone())
        }
    }

    async fn put(store: &dyn Store, key: &str) {
        let write = Write::Put {
            key: key.into(),
            value: Bytes::from_static(b"x"),
            ttl: None,
        };
        let transaction = Transaction {
            writes: vec![write],
            ..Transaction::default()
        };
        store.commit(transaction).await.unwrap();
    }

    /// A watch of `mine` that runs.
    fn watch(
        store: &Arc<crate::memory::Memory>,
        codec: Arc<dyn Codec>,
        progress_every: Duration,
    ) -> Receiver<Result<WatchResponse, Status>> {
        let (responses, answers) = channel(WAITING_RESPONSES);
        let watcher = Watcher {
            parts: Server::new(store.clone(), codec).0,
            responses,
            id: 1,
            span: Span::parse(b"mine".to_vec(), Vec::new()).unwrap(),
            after: 0,
            request: WatchCreateRequest {
                progress_notify: true,
                ..WatchCreateRequest::default()
            },
            complete_to: Arc::default(),
        };
        tokio::spawn(watcher.run(0, progress_every));
        answers
    }

    #[tokio::test]
    async fn a_watch_that_cannot_show_an_event_ends_and_says_why() {
        let store = crate::memory::open();
        let mut answers = watch(&store, Arc::new(Unreadable), PROGRESS_EVERY);
        put(&*store, "mine").await;
        let ended = timeout(PATIENCE, answers.recv()).await.unwrap().unwrap().unwrap();
        assert!(
            ended.canceled && ended.cancel_reason.contains("nobody can read this"),
            "{ended:?}"
        );
    }

    #[tokio::test]
    async fn a_watch_of_quiet_keys_tells_how_far_it_is_although_others_are_busy() {
        let store = crate::memory::open();
        let mut answers = watch(&store, Arc::new(Identity), Duration::from_millis(100));
        let busy = async {
            loop {
                put(&*store, "other").await;
                sleep(Duration::from_millis(10)).await;
            }
        };
        let told = tokio::select! {
            told = timeout(PATIENCE, answers.recv()) => told.unwrap().unwrap().unwrap(),
            () = busy => unreachable!("it goes on for ever"),
        };
        assert!(told.events.is_empty() && told.header.unwrap().revision > 0);
    }
}
