//! One watch: first what is there, then what changes, with bookmarks in between, until its time is over.
//!
//! It yields events; how they are framed and sent is the business of whoever asked.

use std::sync::Arc;
use std::time::Duration;

use api::{Error, Reason};
use store::{Entry, EventStream, Revision, Snapshot, StoreError};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::errors::store_error;
use crate::filter::Filter;
use crate::registry::Registry;
use crate::watch::{Change, Follower, Read, Transition};

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Initial events come in batches of about this many bytes of stored objects.
const BATCH_BYTES: usize = 64 * 1024;

pub struct WatchRequest {
    pub filter: Filter,
    /// `None` begins with the current state as ADDED events.
    pub after: Option<Revision>,
    pub bookmarks: bool,
    /// Ends the initial events with the annotated bookmark.
    pub announce_initial_end: bool,
    pub timeout: Duration,
    /// Ends the watch when what it watches is no longer served as it was.
    pub retired: Option<Receiver<bool>>,
}

/// What a watcher is told.
pub enum WatchEvent {
    /// An object of the initial state.
    Initial(Arc<Entry>),
    Change(Transition, Arc<Change>),
    /// How far the watch has come; `ends_initial` is true for the one after the initial state.
    Bookmark {
        revision: Revision,
        ends_initial: bool,
    },
    /// The last event: the watch cannot go on.
    Error(Error),
}

pub struct Watcher {
    request: WatchRequest,
    follower: Follower,
    initial: Option<Initial>,
    catch_up: Option<Box<dyn EventStream>>,
    pending: Vec<WatchEvent>,
    ends: Instant,
    next_bookmark: Instant,
    ended: bool,
}

struct Initial {
    snapshot: Arc<dyn Snapshot>,
    next_key: Option<String>,
}

impl Registry {
    /// Opens a watch. Fails before the first event when the revision is compacted, so that the client sees a 410.
    pub async fn watch(&self, request: WatchRequest) -> Result<Watcher, Error> {
        let topic = request.filter.topic();
        let ring = request.filter.served.ring.clone();
        let (mut initial, mut catch_up) = (None, None);
        let follower = match request.after {
            None => {
                let snapshot = self.latest().await?;
                let follower = Follower::new(ring, topic, snapshot.revision());
                let next_key = Some(request.filter.key.clone());
                initial = Some(Initial { next_key, snapshot });
                follower
            }
            Some(after) => {
                let follower = Follower::new(ring, topic, after);
                if follower.is_behind() {
                    catch_up = Some(self.store.watch(after).await.map_err(too_old)?);
                }
                follower
            }
        };
        let now = Instant::now();
        Ok(Watcher {
            follower,
            initial,
            catch_up,
            pending: Vec::new(),
            ends: now + request.timeout,
            next_bookmark: now + BOOKMARK_EVERY.min(request.timeout / 2),
            ended: false,
            request,
        })
    }
}

impl Watcher {
    /// The next events, at least one; `None` when the watch is over. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Vec<WatchEvent>> {
        loop {
            if !self.pending.is_empty() {
                return Some(std::mem::take(&mut self.pending));
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

    fn fill_initial(&mut self) {
        let Some(initial) = &mut self.initial else { return };
        let filter = &self.request.filter;
        let Some(from) = initial.next_key.take() else {
            self.initial = None;
            if self.request.announce_initial_end {
                self.push_bookmark(true);
            }
            return;
        };
        let mut size = 0;
        for entry in initial.snapshot.range(&filter.key, &from) {
            if size >= BATCH_BYTES {
                initial.next_key = Some(entry.key.to_string());
                break;
            }
            if filter.covers_key(&entry.key) && (filter.is_trivial() || filter.matches(&entry.value)) {
                size += entry.value.len();
                self.pending.push(WatchEvent::Initial(entry.clone()));
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
                    self.push(&Arc::new(Change::new(event)));
                }
            }
            Err(error) => {
                self.pending.push(WatchEvent::Error(too_old(error)));
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
            // In this order, so that a stream of changes cannot keep a watch from its end, and without dice.
            biased;
            () = retirement => self.ended = true,
            () = sleep_until(deadline) => self.mark_progress(),
            read = self.follower.next() => self.take(read),
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
            self.push_bookmark(false);
        }
        self.next_bookmark = now + BOOKMARK_EVERY;
        self.ended |= now >= self.ends;
    }

    fn push_bookmark(&mut self, ends_initial: bool) {
        let revision = self.follower.at();
        self.pending.push(WatchEvent::Bookmark { revision, ends_initial });
    }

    fn push(&mut self, change: &Arc<Change>) {
        if let Some(transition) = self.request.filter.transition(&change.event) {
            self.pending.push(WatchEvent::Change(transition, change.clone()));
        }
    }
}

fn too_old(error: StoreError) -> Error {
    match error {
        StoreError::Compacted { requested, oldest } => Error::new(
            Reason::Expired,
            format!("too old resource version: {requested} ({oldest})"),
        ),
        other => store_error(other),
    }
}
