//! Pods that wait for a node: ready to be tried, pausing after a failure, or waiting for something to change.
//!
//! Every method is told the time, so that tests are exact.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client::Backoff;
use tokio::time::Instant;

use crate::plugins;
use crate::pod::Pod;
use crate::queued_pod::QueuedPod;

/// The pauses of a pod after its attempts, as upstream's.
const PAUSE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// A pod that nothing has changed for is tried again after this long, in case we missed why it should be.
const MAX_UNSCHEDULABLE: Duration = Duration::from_secs(300);

/// How many pods there are in each place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

#[derive(Default)]
pub struct SchedulingQueue {
    active: BTreeSet<Turn>,
    backoff: BTreeMap<(Instant, u64), String>,
    /// By when their last attempt failed.
    unschedulable: BTreeMap<(Instant, u64), String>,
    entries: HashMap<String, Entry>,
    sequence: u64,
}

/// A pod's place among the active; ordered by the QueueSort plugin.
#[derive(Clone)]
struct Turn(Arc<QueuedPod>);

struct Entry {
    queued: QueuedPod,
    place: Place,
    /// When its last attempt failed.
    failed_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active,
    /// Until the time; tried earlier when there is nothing else to do, unless it failed by an error.
    Backoff(Instant, u64, Early),
    Unschedulable(Instant, u64),
    /// A plugin does not even want it queued.
    Gated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    Yes,
    No,
}

impl SchedulingQueue {
    /// Adds a pod, or puts its new state in the place of the old one. One that changed in what it asks for is tried
    /// again; `gated` keeps it out.
    pub fn add(&mut self, pod: Arc<Pod>, gated: bool, now: Instant) {
        let uid = pod.metadata.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else {
            self.sequence += 1;
            let queued = QueuedPod {
                pod,
                attempts: 0,
                entered: now,
                since: now,
                sequence: self.sequence,
                rejected_by: BTreeSet::new(),
            };
            self.place(queued, None, if gated { Place::Gated } else { Place::Active });
            return;
        };
        let changed = entry.queued.pod.class != pod.class
            || entry.queued.pod.metadata.labels != pod.metadata.labels
            || entry.queued.pod.gates != pod.gates;
        let (place, failed_at) = (entry.place, entry.failed_at);
        let mut queued = entry.queued.clone();
        queued.pod = pod;
        self.take(&uid);
        match place {
            _ if gated => self.place(queued, failed_at, Place::Gated),
            Place::Gated => {
                let (entered, since) = (now, now);
                self.place(
                    QueuedPod {
                        entered,
                        since,
                        ..queued
                    },
                    failed_at,
                    Place::Active,
                );
            }
            Place::Unschedulable(..) if changed => self.wake(queued, failed_at, now),
            same => self.place(queued, failed_at, same),
        }
    }

    pub fn remove(&mut self, uid: &str) {
        self.take(uid);
    }

    /// The pod to be tried next. It is out of the queue until it is given back.
    pub fn pop(&mut self, now: Instant) -> Option<QueuedPod> {
        self.release_due(now);
        let uid = match self.active.first() {
            Some(turn) => turn.0.pod.metadata.uid.clone(),
            None => self.early()?,
        };
        let mut queued = self.take(&uid)?.queued;
        queued.attempts += 1;
        Some(queued)
    }

    /// Gives back a pod for which there is no node now; it waits until something changes for it.
    pub fn unschedulable(&mut self, queued: QueuedPod, now: Instant) {
        self.sequence += 1;
        let place = Place::Unschedulable(now, self.sequence);
        self.place(queued, Some(now), place);
    }

    /// Gives back a pod that failed by an error; it is tried again after a pause.
    pub fn failed(&mut self, queued: QueuedPod, now: Instant) {
        let at = now + PAUSE.exact(queued.attempts.saturating_sub(1));
        self.sequence += 1;
        let place = Place::Backoff(at, self.sequence, Early::No);
        self.place(queued, Some(now), place);
    }

    /// Tries again the pods that wait for a change, where `could` says that there was one for them.
    pub fn unblock(&mut self, mut could: impl FnMut(&QueuedPod) -> bool, now: Instant) {
        let waiting = self.unschedulable.values();
        let moved = waiting.filter(|uid| self.entries.get(*uid).is_some_and(|entry| could(&entry.queued)));
        let moved: Vec<String> = moved.cloned().collect();
        for uid in moved {
            if let Some(entry) = self.take(&uid) {
                self.wake(entry.queued, entry.failed_at, now);
            }
        }
    }

    /// When [`SchedulingQueue::pop`] may have something that it does not have now.
    pub fn wake_at(&self) -> Option<Instant> {
        let backoff = self.backoff.keys().next().map(|(at, _)| *at);
        let waiting = self.unschedulable.keys().next();
        let waiting = waiting.map(|(since, _)| *since + MAX_UNSCHEDULABLE);
        waiting.into_iter().chain(backoff).min()
    }

    pub fn pending(&self) -> Pending {
        let (active, backoff, unschedulable) = (self.active.len(), self.backoff.len(), self.unschedulable.len());
        Pending {
            active,
            backoff,
            unschedulable,
            gated: self.entries.len() - active - backoff - unschedulable,
        }
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn release_due(&mut self, now: Instant) {
        let paused = self.backoff.iter().take_while(|((at, _), _)| *at <= now);
        let waiting = self.unschedulable.iter();
        let waiting = waiting.take_while(|((since, _), _)| *since + MAX_UNSCHEDULABLE <= now);
        let due: Vec<String> = paused.chain(waiting).map(|(_, uid)| uid.clone()).collect();
        for uid in due {
            if let Some(entry) = self.take(&uid) {
                self.place(
                    QueuedPod {
                        since: now,
                        ..entry.queued
                    },
                    entry.failed_at,
                    Place::Active,
                );
            }
        }
    }

    /// With nothing else to do there is no reason to let a pod wait out its pause.
    fn early(&self) -> Option<String> {
        let mut waiting = self.backoff.values();
        waiting
            .find(|uid| {
                let place = self.entries.get(*uid).map(|entry| entry.place);
                matches!(place, Some(Place::Backoff(_, _, Early::Yes)))
            })
            .cloned()
    }

    fn wake(&mut self, queued: QueuedPod, failed_at: Option<Instant>, now: Instant) {
        let pause = PAUSE.exact(queued.attempts.saturating_sub(1));
        let until = failed_at.map(|at| at + pause).filter(|at| *at > now);
        self.sequence += 1;
        let place = match until {
            Some(at) => Place::Backoff(at, self.sequence, Early::Yes),
            None => Place::Active,
        };
        self.place(QueuedPod { since: now, ..queued }, failed_at, place);
    }

    fn place(&mut self, queued: QueuedPod, failed_at: Option<Instant>, place: Place) {
        let uid = queued.pod.metadata.uid.clone();
        match place {
            Place::Active => {
                self.active.insert(Turn(Arc::new(queued.clone())));
            }
            Place::Backoff(at, sequence, _) => {
                self.backoff.insert((at, sequence), uid.clone());
            }
            Place::Unschedulable(since, sequence) => {
                self.unschedulable.insert((since, sequence), uid.clone());
            }
            Place::Gated => {}
        }
        let entry = Entry {
            queued,
            place,
            failed_at,
        };
        self.entries.insert(uid, entry);
    }

    fn take(&mut self, uid: &str) -> Option<Entry> {
        let entry = self.entries.remove(uid)?;
        match entry.place {
            Place::Active => {
                self.active.remove(&Turn(Arc::new(entry.queued.clone())));
            }
            Place::Backoff(at, sequence, _) => {
                self.backoff.remove(&(at, sequence));
            }
            Place::Unschedulable(since, sequence) => {
                self.unschedulable.remove(&(since, sequence));
            }
            Place::Gated => {}
        }
        Some(entry)
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Turn) -> Ordering {
        let mut sorting = plugins::table().iter();
        let order = sorting.find_map(|row| row.plugin.queue_sort(&self.0, &other.0));
        order.unwrap_or_else(|| self.0.sequence.cmp(&other.0.sequence))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Turn) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Turn) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pod(name: &str, priority: i32) -> Arc<Pod> {
        let mut pod = Pod {
            priority,
            ..Pod::default()
        };
        pod.metadata.uid = name.to_owned();
        Arc::new(pod)
    }

    fn popped(queue: &mut SchedulingQueue, now: Instant) -> String {
        queue
            .pop(now)
            .map_or("-".to_owned(), |queued| queued.pod.metadata.uid.clone())
    }

    #[test]
    fn higher_priorities_go_first_then_those_who_came_first() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        queue.add(pod("a", 0), false, now);
        queue.add(pod("b", 0), false, now);
        queue.add(pod("urgent", 9), false, now + SECOND);
        let order: Vec<String> = (0..4).map(|_| popped(&mut queue, now)).collect();
        assert_eq!(order, ["urgent", "a", "b", "-"]);
    }

    #[test]
    fn an_unschedulable_pod_waits_for_a_change() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        queue.add(pod("a", 0), false, now);
        let tried = queue.pop(now).unwrap();
        queue.unschedulable(tried, now);
        queue.unblock(|_| false, now);
        assert_eq!(popped(&mut queue, now + 60 * SECOND), "-");
        // Its pause is not over, but there is nothing else to do.
        queue.unblock(|_| true, now);
        assert_eq!(popped(&mut queue, now), "a");
    }

    #[test]
    fn a_pod_that_pauses_lets_others_go_first() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        queue.add(pod("a", 5), false, now);
        let tried = queue.pop(now).unwrap();
        queue.unschedulable(tried, now);
        queue.unblock(|_| true, now);
        queue.add(pod("b", 0), false, now);
        assert_eq!(popped(&mut queue, now), "b");
    }

    #[test]
    fn errors_are_retried_after_growing_pauses() {
        let (mut queue, mut now) = (SchedulingQueue::default(), Instant::now());
        queue.add(pod("a", 0), false, now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let tried = queue.pop(now).unwrap();
            queue.failed(tried, now);
            assert_eq!(popped(&mut queue, now), "-");
            let at = queue.wake_at().unwrap();
            pauses.push((at - now).as_secs());
            now = at;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn what_nothing_changed_for_is_tried_again_after_five_minutes() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        queue.add(pod("a", 0), false, now);
        let tried = queue.pop(now).unwrap();
        queue.unschedulable(tried, now);
        assert_eq!(queue.wake_at(), Some(now + 300 * SECOND));
        assert_eq!(popped(&mut queue, now + 300 * SECOND), "a");
    }

    #[test]
    fn a_gated_pod_comes_when_its_gates_are_lifted() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        queue.add(pod("a", 0), true, now);
        queue.unblock(|_| true, now);
        assert_eq!(popped(&mut queue, now), "-");
        queue.add(pod("a", 0), false, now);
        assert_eq!(popped(&mut queue, now), "a");
    }

    #[test]
    fn a_pod_that_is_gone_is_not_tried() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        queue.add(pod("a", 0), false, now);
        queue.remove("a");
        assert_eq!(popped(&mut queue, now), "-");
        assert!(queue.is_empty());
    }
}
