//! A watch as a response body: initial events, then the ring, bookmarks in between, until the timeout.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Histogram, Series};
use api::{Error, Reason};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use store::{EventStream, Revision, Snapshot, Store, StoreError};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::filter::{Filter, Transition};
use super::{Change, Follower, Read, Ring};
use crate::body::BoxError;
use crate::respond::FrameEncoder;

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Initial events are sent in chunks of about this size.
const CHUNK_BYTES: usize = 64 * 1024;

pub struct WatchRequest {
    pub filter: Filter,
    pub encoder: FrameEncoder,
    /// `None` begins with the current state as ADDED events.
    pub after: Option<Revision>,
    pub bookmarks: bool,
    /// Ends the initial events with the annotated bookmark.
    pub announce_initial_end: bool,
    pub timeout: Duration,
    /// Counts what is sent, by its bytes.
    pub sent: Arc<Series<Histogram>>,
    /// Ends the watch when what it watches is no longer served as it was.
    pub retired: Option<Receiver<bool>>,
}

struct Watcher {
    request: WatchRequest,
    follower: Follower,
    initial: Option<Initial>,
    catch_up: Option<Box<dyn EventStream>>,
    pending: VecDeque<Bytes>,
    ends: Instant,
    next_bookmark: Instant,
    ended: bool,
}

struct Initial {
    snapshot: Arc<dyn Snapshot>,
    next_key: Option<String>,
}

/// Opens the watch. Fails before the first byte when the revision is compacted, so that the client sees a 410.
pub async fn stream(
    store: &Arc<dyn Store>,
    ring: Arc<Ring>,
    request: WatchRequest,
) -> Result<impl Stream<Item = Result<Bytes, BoxError>> + Send + use<>, Error> {
    let topic = request.filter.topic();
    let (mut initial, mut catch_up) = (None, None);
    let follower = match request.after {
        None => {
            let snapshot = store.latest().await.map_err(unavailable)?;
            let follower = Follower::new(ring, topic, snapshot.revision());
            let next_key = Some(request.filter.key.clone());
            initial = Some(Initial { next_key, snapshot });
            follower
        }
        Some(after) => {
            let follower = Follower::new(ring, topic, after);
            if follower.is_behind() {
                catch_up = Some(store.watch(after).await.map_err(too_old)?);
            }
            follower
        }
    };
    let now = Instant::now();
    let watcher = Watcher {
        follower,
        initial,
        catch_up,
        pending: VecDeque::new(),
        ends: now + request.timeout,
        next_bookmark: now + BOOKMARK_EVERY.min(request.timeout / 2),
        ended: false,
        request,
    };
    Ok(stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next().await?;
        Some((Ok(chunk), watcher))
    }))
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.take_pending() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            if self.initial.is_some() {
                self.fill_initial();
            } else if self.catch_up.is_some() {
                self.fill_from_history().await;
            } else {
                self.fill_from_ring().await;
            }
        }
    }

    fn take_pending(&mut self) -> Option<Bytes> {
        let first = self.pending.pop_front()?;
        self.sent(&first);
        if self.pending.is_empty() {
            return Some(first);
        }
        let mut chunk = Vec::with_capacity(first.len() * 2);
        chunk.extend_from_slice(&first);
        while chunk.len() < CHUNK_BYTES
            && let Some(frame) = self.pending.pop_front()
        {
            self.sent(&frame);
            chunk.extend_from_slice(&frame);
        }
        Some(chunk.into())
    }

    fn sent(&self, frame: &Bytes) {
        self.request.sent.value.observe(frame.len() as f64);
    }

    fn fill_initial(&mut self) {
        let Some(initial) = &mut self.initial else { return };
        let filter = &self.request.filter;
        let Some(from) = initial.next_key.take() else {
            self.initial = None;
            if self.request.announce_initial_end {
                self.pending
                    .push_back(self.request.encoder.bookmark(self.follower.at(), true));
            }
            return;
        };
        let mut size = 0;
        for entry in initial.snapshot.range(&filter.key, &from) {
            if size >= CHUNK_BYTES {
                initial.next_key = Some(entry.key.to_string());
                break;
            }
            if filter.covers_key(&entry.key) && (filter.is_trivial() || filter.matches(&entry.value)) {
                let frame = self
                    .request
                    .encoder
                    .object(Transition::Added, &entry.value, entry.mod_revision);
                size += frame.len();
                self.pending.push_back(frame);
            }
        }
    }

    /// Reads the store's own history until the ring can take over.
    async fn fill_from_history(&mut self) {
        let Some(events) = &mut self.catch_up else { return };
        match events.next().await {
            Ok(batch) => {
                self.follower.restart(batch.complete_to);
                if !self.follower.is_behind() {
                    self.catch_up = None;
                }
                for event in batch.events {
                    self.push(&Change::new(event));
                }
            }
            Err(error) => {
                self.pending.push_back(self.request.encoder.error(&too_old(error)));
                self.ended = true;
            }
        }
    }

    async fn fill_from_ring(&mut self) {
        let deadline = self.ends.min(self.next_bookmark);
        let retired = &mut self.request.retired;
        let retirement = async {
            match retired {
                Some(retired) => drop(retired.wait_for(|retired| *retired).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = self.follower.next() => self.take(read),
            () = retirement => self.ended = true,
            () = sleep_until(deadline) => self.mark_progress(),
        }
    }

    fn take(&mut self, read: Read) {
        match read {
            Read::Behind => self.ended = true,
            Read::Changes(changes) => changes.iter().for_each(|change| self.push(change)),
        }
    }

    /// A bookmark tells how far the watch has come, also when nothing concerned it.
    fn mark_progress(&mut self) {
        let read = self.follower.read();
        self.take(read);
        let now = Instant::now();
        if self.request.bookmarks && !self.ended {
            self.pending
                .push_back(self.request.encoder.bookmark(self.follower.at(), false));
        }
        self.next_bookmark = now + BOOKMARK_EVERY;
        self.ended |= now >= self.ends;
    }

    fn push(&mut self, change: &Change) {
        if let Some(transition) = self.request.filter.transition(&change.event) {
            self.pending.push_back(self.request.encoder.change(transition, change));
        }
    }
}

fn too_old(error: StoreError) -> Error {
    match error {
        StoreError::Compacted { requested, oldest } => Error::new(
            Reason::Expired,
            format!("too old resource version: {requested} ({oldest})"),
        ),
        other => unavailable(other),
    }
}

fn unavailable(error: StoreError) -> Error {
    crate::registry::store_error(error)
}
