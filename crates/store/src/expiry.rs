//! Keys with a time to live: which are due, and the task that deletes them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::shared::Shared;
use crate::{Compare, Entry, Event, Revision, Store, Transaction, Write};

/// Deletes under way at once; they share a batch where the engine has batches.
const DELETES_AT_ONCE: usize = 128;

/// The wall clock may jump, so no sleep is longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// How long to wait when the store takes no writes.
const RETRY: Duration = Duration::from_secs(1);

/// The live keys that will expire, soonest first.
#[derive(Default)]
pub(crate) struct Expiries {
    queue: Mutex<Queue>,
    sooner: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: BTreeSet<Expiry>,
    /// When keys that were given more time expire, by the writes that gave them their first one.
    prolonged: HashMap<(Arc<str>, Revision), u64>,
}

impl Queue {
    fn remove(&mut self, entry: &Entry) -> Option<Expiry> {
        let mut expiry = Expiry::from_entry(entry)?;
        if let Some(at_ms) = self.prolonged.remove(&(entry.key.clone(), entry.mod_revision)) {
            expiry.at_ms = at_ms;
        }
        self.waiting.remove(&expiry).then_some(expiry)
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Expiry {
    at_ms: u64,
    mod_revision: Revision,
    key: Arc<str>,
}

impl Expiry {
    fn from_entry(entry: &Entry) -> Option<Self> {
        let expiry = Expiry {
            at_ms: entry.expires_at_ms,
            mod_revision: entry.mod_revision,
            key: entry.key.clone(),
        };
        (entry.expires_at_ms != 0).then_some(expiry)
    }
}

impl Expiries {
    pub fn track(&self, entry: &Entry) {
        if let Some(expiry) = Expiry::from_entry(entry) {
            let waiting = &mut self.queue.lock().waiting;
            waiting.insert(expiry.clone());
            if waiting.first() == Some(&expiry) {
                self.sooner.notify_one();
            }
        }
    }

    /// Gives keys that have not expired so long from now on.
    pub fn prolong(&self, entries: &[Arc<Entry>], ttl: Duration) {
        let at_ms = now_ms().saturating_add(ttl.as_millis() as u64);
        let queue = &mut *self.queue.lock();
        for entry in entries {
            if let Some(expiry) = queue.remove(entry) {
                queue.prolonged.insert((entry.key.clone(), entry.mod_revision), at_ms);
                queue.waiting.insert(Expiry { at_ms, ..expiry });
            }
        }
        // They may have had longer before.
        self.sooner.notify_one();
    }

    /// Keeps up with a change of the key space.
    pub fn follow(&self, event: &Event) {
        if let Some(previous) = &event.previous {
            self.queue.lock().remove(previous);
        }
        if let Some(current) = &event.current {
            self.track(current);
        }
    }

    fn due(&self, now_ms: u64) -> Vec<Expiry> {
        let queue = self.queue.lock();
        queue
            .waiting
            .iter()
            .take_while(|expiry| expiry.at_ms <= now_ms)
            .take(DELETES_AT_ONCE)
            .cloned()
            .collect()
    }

    /// Returns when a key may be due.
    async fn wait(&self) {
        let next_ms = self.queue.lock().waiting.first().map(|expiry| expiry.at_ms);
        let Some(next_ms) = next_ms else {
            return self.sooner.notified().await;
        };
        let left = Duration::from_millis(next_ms.saturating_sub(now_ms()));
        tokio::select! {
            () = sleep(left.min(LONGEST_SLEEP)) => (),
            () = self.sooner.notified() => (),
        }
    }
}

/// Deletes keys as they become due, until the store is closed. Every engine closes its shared part when it is dropped.
pub(crate) async fn run<S: Store>(store: Weak<S>, shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.expiries.wait() => (),
            () = shared.ended() => return,
        }
        let Some(store) = store.upgrade() else { return };
        let due = shared.expiries.due(now_ms());
        let deletes = due.into_iter().map(|expiry| store.commit(delete(expiry)));
        let outcomes = join_all(deletes).await;
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            tracing::warn!(%error, "Failed to delete expired keys; retrying");
            sleep(RETRY).await;
        }
    }
}

/// Deletes only the very write that carried the time to live.
fn delete(expiry: Expiry) -> Transaction {
    Transaction {
        compares: vec![Compare::Unchanged {
            key: expiry.key.clone(),
            mod_revision: expiry.mod_revision,
        }],
        writes: vec![Write::Delete { key: expiry.key }],
    }
}

pub(crate) fn now_ms() -> u64 {
    clock::since_epoch().as_millis() as u64
}
