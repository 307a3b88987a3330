//! What is left to do: keys, each at most once, some only after a while.

mod metrics;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::metrics::{QueueFigures, QueueMetrics};

use crate::Backoff;

/// The pauses after a key has failed: as upstream's, from 5 ms, but bounded at a minute instead of 16.
const RETRY: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));

/// A queue in which a key waits at most once and is worked on by at most one worker. A key that is added while it is
/// worked on comes round again afterwards. Its bound is the number of distinct keys.
pub struct WorkQueue<K> {
    state: Mutex<QueueState<K>>,
    changed: Notify,
}

/// The queue without waiting: every method is told the time.
pub struct QueueState<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when the work under way is done, and since when.
    dirty: HashMap<K, Instant>,
    /// Since when they are worked on.
    working: HashMap<K, Instant>,
    delayed: BTreeMap<(Instant, u64), K>,
    delayed_at: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    sequence: u64,
    backoff: Backoff,
    figures: Arc<QueueFigures>,
}

impl<K: Clone + Eq + Hash> Default for WorkQueue<K> {
    fn default() -> WorkQueue<K> {
        WorkQueue::with_backoff(RETRY)
    }
}

impl<K> Drop for QueueState<K> {
    fn drop(&mut self) {
        self.figures.ended(self.dirty.len(), self.working.values().copied());
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    pub fn with_backoff(backoff: Backoff) -> WorkQueue<K> {
        WorkQueue::new(QueueState::new(backoff, Arc::default()))
    }

    /// A queue that is counted under this name.
    pub fn named(name: &str, metrics: &QueueMetrics) -> WorkQueue<K> {
        WorkQueue::new(QueueState::new(RETRY, metrics.of(name)))
    }

    fn new(state: QueueState<K>) -> WorkQueue<K> {
        WorkQueue {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    pub fn add(&self, key: K) {
        self.state.lock().add(key, Instant::now());
        self.changed.notify_one();
    }

    pub fn add_after(&self, key: K, delay: Duration) {
        self.state.lock().add_at(key, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Adds a key that failed, after its next pause.
    pub fn retry(&self, key: K) {
        self.state.lock().retry(key, Instant::now());
        self.changed.notify_one();
    }

    /// The key succeeded: its next failure starts with the shortest pause again.
    pub fn forget(&self, key: &K) {
        self.state.lock().forget(key);
    }

    pub fn failures(&self, key: &K) -> u32 {
        self.state.lock().failures(key)
    }

    /// Waits for a key to work on; [`WorkQueue::done`] must follow.
    pub async fn next(&self) -> K {
        loop {
            let wake = {
                let mut state = self.state.lock();
                let now = Instant::now();
                if let Some(key) = state.next(now) {
                    // Another worker may be waiting for what is left.
                    if state.has_ready() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.wake_at()
            };
            let changed = self.changed.notified();
            match wake {
                Some(at) => drop(tokio::time::timeout_at(at, changed).await),
                None => changed.await,
            }
        }
    }

    pub fn done(&self, key: &K) {
        self.state.lock().done(key, Instant::now());
        self.changed.notify_one();
    }

    pub fn len(&self) -> usize {
        self.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Clone + Eq + Hash> QueueState<K> {
    pub fn new(backoff: Backoff, figures: Arc<QueueFigures>) -> QueueState<K> {
        QueueState {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            working: HashMap::new(),
            delayed: BTreeMap::new(),
            delayed_at: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
            backoff,
            figures,
        }
    }

    pub fn add(&mut self, key: K, now: Instant) {
        if self.dirty.contains_key(&key) {
            return;
        }
        self.dirty.insert(key.clone(), now);
        self.figures.added();
        if !self.working.contains_key(&key) {
            self.ready.push_back(key);
        }
    }

    /// Adds the key at a later time; of several times the earliest counts.
    pub fn add_at(&mut self, key: K, at: Instant) {
        self.figures.postponed();
        if let Some(known) = self.delayed_at.get(&key).copied() {
            if known.0 <= at {
                return;
            }
            self.delayed.remove(&known);
        }
        self.sequence += 1;
        let id = (at, self.sequence);
        self.delayed.insert(id, key.clone());
        self.delayed_at.insert(key, id);
    }

    pub fn retry(&mut self, key: K, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = self.backoff.exact(*failures);
        *failures = failures.saturating_add(1);
        self.add_at(key, now + pause);
    }

    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    pub fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    pub fn next(&mut self, now: Instant) -> Option<K> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let ((due, _), key) = entry.remove_entry();
            self.delayed_at.remove(&key);
            self.add(key, due);
        }
        let key = self.ready.pop_front()?;
        let since = self.dirty.remove(&key).unwrap_or(now);
        self.figures.begun(since, now);
        self.working.insert(key.clone(), now);
        Some(key)
    }

    pub fn done(&mut self, key: &K, now: Instant) {
        if let Some(begun) = self.working.remove(key) {
            self.figures.done(begun, now);
        }
        if self.dirty.contains_key(key) {
            self.ready.push_back(key.clone());
        }
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next delayed key is due.
    pub fn wake_at(&self) -> Option<Instant> {
        self.delayed.keys().next().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn queue() -> QueueState<&'static str> {
        QueueState::new(Backoff::new(5 * MS, 40 * MS), Arc::default())
    }

    #[test]
    fn a_key_waits_once_and_is_worked_on_once() {
        let (mut queue, now) = (queue(), Instant::now());
        queue.add("a", now);
        queue.add("a", now);
        assert_eq!(queue.next(now), Some("a"));
        queue.add("a", now);
        assert_eq!(queue.next(now), None, "it is being worked on");
        queue.done(&"a", now);
        assert_eq!(queue.next(now), Some("a"), "it changed meanwhile");
        queue.done(&"a", now);
        assert_eq!(queue.next(now), None);
    }

    #[test]
    fn of_several_delays_the_shortest_counts() {
        let (mut queue, now) = (queue(), Instant::now());
        queue.add_at("a", now + 50 * MS);
        queue.add_at("a", now + 20 * MS);
        queue.add_at("a", now + 30 * MS);
        assert_eq!(queue.wake_at(), Some(now + 20 * MS));
        assert_eq!(queue.next(now + 19 * MS), None);
        assert_eq!(queue.next(now + 20 * MS), Some("a"));
        queue.done(&"a", now);
        assert_eq!(queue.next(now + 60 * MS), None);
    }

    #[test]
    fn failures_wait_longer_each_time_up_to_a_bound() {
        let (mut queue, now) = (queue(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..5 {
            queue.retry("a", now);
            pauses.push(queue.wake_at().unwrap() - now);
            assert_eq!(queue.next(now + 40 * MS), Some("a"));
            queue.done(&"a", now);
        }
        assert_eq!(pauses, [5 * MS, 10 * MS, 20 * MS, 40 * MS, 40 * MS]);
        queue.forget(&"a");
        queue.retry("a", now);
        assert_eq!(queue.wake_at(), Some(now + 5 * MS));
    }

    #[tokio::test]
    async fn workers_share_what_was_added_at_once() {
        let queue = std::sync::Arc::new(WorkQueue::<u32>::default());
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        (0..4).for_each(|key| queue.add(key));
        let mut keys = Vec::new();
        for worker in workers {
            keys.push(worker.await.unwrap());
        }
        keys.sort_unstable();
        assert_eq!(keys, [0, 1, 2, 3]);
    }
}
