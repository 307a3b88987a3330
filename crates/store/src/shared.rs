//! What all engines share: the published state, the ring of recent events, and the readers of both.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::expiry::Expiries;
use crate::history::{Commit, History};
use crate::state::State;
use crate::{EventBatch, EventStream, Revision, StoreError};

/// How many older states stay at hand for clients that page through one revision, and for how long after the last page.
const PINNED_STATES: usize = 16;
const PINNED_AGE: Duration = Duration::from_secs(60);

pub(crate) struct Shared {
    /// Readers load this and nothing else; they never wait for a writer.
    state: ArcSwap<State>,
    /// Also guards the replacement of `state`, so that the two can be read as one.
    history: RwLock<History>,
    pinned: Mutex<VecDeque<Pinned>>,
    signal: watch::Sender<Signal>,
    /// For those who wait for the end only, so that no write wakes them.
    end: watch::Sender<bool>,
    pub expiries: Expiries,
}

struct Pinned {
    state: Arc<State>,
    last_used: Instant,
}

/// What wakes the readers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Signal {
    pub revision: Revision,
    pub closed: bool,
}

/// Why something cannot be read from the ring.
pub(crate) enum Missing {
    /// The ring begins after the revision; an engine with a longer memory may still have it.
    Older {
        floor: Revision,
    },
    Future {
        current: Revision,
    },
}

impl Missing {
    /// The error of an engine that remembers nothing beyond the ring.
    pub fn into_error(self, requested: Revision) -> StoreError {
        match self {
            Missing::Older { floor } => StoreError::Compacted {
                requested,
                oldest: floor,
            },
            Missing::Future { current } => StoreError::Future { requested, current },
        }
    }
}

impl Shared {
    pub fn new(state: State, history: History) -> Arc<Self> {
        let expiries = Expiries::default();
        state.entries.values().for_each(|entry| expiries.track(entry));
        let signal = Signal {
            revision: state.revision,
            closed: false,
        };
        Arc::new(Shared {
            state: ArcSwap::from_pointee(state),
            history: RwLock::new(history),
            pinned: Mutex::default(),
            signal: watch::Sender::new(signal),
            end: watch::Sender::new(false),
            expiries,
        })
    }

    pub fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Makes `state`, reached through `commits`, the current one. There is only ever one caller at a time.
    pub fn publish(&self, state: State, commits: Vec<Commit>, now_ms: u64) {
        let revision = state.revision;
        for event in commits.iter().flat_map(|commit| &commit.events) {
            self.expiries.follow(event);
        }
        let mut history = self.history.write();
        commits.into_iter().for_each(|commit| history.push(commit));
        history.advance(revision);
        history.trim(now_ms);
        self.state.store(Arc::new(state));
        drop(history);
        self.pinned
            .lock()
            .retain(|pinned| pinned.last_used.elapsed() < PINNED_AGE);
        self.signal.send_modify(|signal| signal.revision = revision);
    }

    /// Starts again at `state`, to which no known events lead.
    pub fn reset(&self, state: State) {
        let revision = state.revision;
        let mut history = self.history.write();
        history.restart(revision);
        self.state.store(Arc::new(state));
        drop(history);
        self.signal.send_modify(|signal| signal.revision = revision);
    }

    /// Moves on to revision `to` if the state still is that of `from` and the revisions between changed nothing.
    pub fn advance(&self, from: Revision, to: Revision) {
        let mut history = self.history.write();
        let state = self.state.load();
        if state.revision != from || to <= from {
            return;
        }
        history.advance(to);
        self.state.store(Arc::new(State {
            revision: to,
            ..State::clone(&state)
        }));
        drop(history);
        self.signal.send_modify(|signal| signal.revision = to);
    }

    /// Waits until the state has reached `revision`; `false` when that takes longer than `patience`.
    pub async fn reaches(&self, revision: Revision, patience: Duration) -> Result<bool, StoreError> {
        if self.state.load().revision >= revision {
            return Ok(true);
        }
        let mut signal = self.signal.subscribe();
        let reached = signal.wait_for(|signal| signal.closed || signal.revision >= revision);
        match timeout(patience, reached).await {
            Err(_) => Ok(false),
            Ok(Ok(signal)) if !signal.closed => Ok(true),
            Ok(_) => Err(closed()),
        }
    }

    /// Forgets the events up to and including `revision`.
    pub fn forget(&self, revision: Revision) {
        self.history.write().forget(revision);
        self.pinned.lock().retain(|pinned| pinned.state.revision >= revision);
    }

    /// The state at `revision`, kept at hand for further pages of it.
    pub fn state_at(&self, revision: Revision) -> Result<Arc<State>, Missing> {
        if let Some(pinned) = self.pinned(revision) {
            return Ok(pinned);
        }
        let state = self.rewind(revision)?;
        let is_current = state.revision == self.state.load().revision;
        Ok(if is_current { state } else { self.pin(state) })
    }

    /// The state at `revision`, made from the current one by taking back what came after.
    pub fn rewind(&self, revision: Revision) -> Result<Arc<State>, Missing> {
        let history = self.history.read();
        let current = self.state.load_full();
        if revision > current.revision {
            return Err(Missing::Future {
                current: current.revision,
            });
        }
        let commits = history
            .since(revision)
            .ok_or(Missing::Older { floor: history.floor() })?;
        drop(history);
        if revision == current.revision {
            return Ok(current);
        }
        let mut state = State::clone(&current);
        for event in commits.iter().rev().flat_map(|commit| commit.events.iter().rev()) {
            state.undo(event);
        }
        state.revision = revision;
        Ok(Arc::new(state))
    }

    /// A state that was pinned earlier and is still at hand.
    pub fn pinned(&self, revision: Revision) -> Option<Arc<State>> {
        let mut pinned = self.pinned.lock();
        let found = pinned.iter_mut().find(|pinned| pinned.state.revision == revision)?;
        found.last_used = Instant::now();
        Some(found.state.clone())
    }

    /// Keeps `state` at hand for the next pages.
    pub fn pin(&self, state: Arc<State>) -> Arc<State> {
        let mut pinned = self.pinned.lock();
        if pinned.len() == PINNED_STATES {
            pinned.pop_front();
        }
        pinned.push_back(Pinned {
            state: state.clone(),
            last_used: Instant::now(),
        });
        state
    }

    /// A reader of every event after `after`.
    pub fn cursor(self: &Arc<Self>, after: Revision) -> Result<Cursor, Missing> {
        let history = self.history.read();
        let current = self.state.load().revision;
        if after > current {
            return Err(Missing::Future { current });
        }
        if after < history.floor() {
            return Err(Missing::Older { floor: history.floor() });
        }
        Ok(Cursor {
            shared: self.clone(),
            signal: self.signal.subscribe(),
            after,
        })
    }

    pub fn close(&self) {
        self.signal.send_modify(|signal| signal.closed = true);
        self.end.send_replace(true);
    }

    pub fn check_open(&self) -> Result<(), StoreError> {
        if self.signal.borrow().closed {
            Err(closed())
        } else {
            Ok(())
        }
    }

    /// Returns when the store is closed.
    pub async fn ended(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.end.subscribe().wait_for(|ended| *ended).await;
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

/// A position in the ring.
pub(crate) struct Cursor {
    shared: Arc<Shared>,
    signal: watch::Receiver<Signal>,
    after: Revision,
}

impl Cursor {
    /// Waits for what comes next. The inner error says that the ring has moved past this reader.
    pub async fn advance(&mut self) -> Result<Result<EventBatch, Missing>, StoreError> {
        loop {
            if self.signal.borrow_and_update().closed {
                return Err(closed());
            }
            let page = {
                let history = self.shared.history.read();
                match history.next(self.after) {
                    Some(page) => page,
                    None => return Ok(Err(Missing::Older { floor: history.floor() })),
                }
            };
            if page.complete_to() > self.after {
                self.after = page.complete_to();
                return Ok(Ok(page.into_batch()));
            }
            self.signal.changed().await.map_err(|_| closed())?;
        }
    }
}

/// A watch that ends with `Compacted` where the ring does.
#[async_trait]
impl EventStream for Cursor {
    async fn next(&mut self) -> Result<EventBatch, StoreError> {
        let after = self.after;
        self.advance().await?.map_err(|missing| missing.into_error(after))
    }
}
