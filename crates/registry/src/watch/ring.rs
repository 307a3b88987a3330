//! The recent events of one resource, held once for all its watchers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use api::IndexedField;
use parking_lot::{Mutex, RwLock};
use store::{Event, Revision};
use tokio::time::Instant;

use super::change::Change;
use super::index::Index;

/// Events a ring remembers. Watchers further behind catch up from the store's own history.
pub const CAPACITY: usize = 4096;

/// Bytes of objects a ring remembers, at most; the newest event always stays.
const CAPACITY_BYTES: usize = 16 << 20;

/// Older events leave the ring even when there is room, as upstream's do, so that what a burst left does not stay.
pub(super) const FRESH: Duration = Duration::from_secs(75);

/// The newest events that keep the frames made of them. Watchers are told at once, so that whoever reads older ones is
/// one of few, and frames take more than the objects themselves.
const FRAMED: usize = 256;

pub struct Ring {
    recent: RwLock<Recent>,
    /// What came since the last [`Ring::advance`].
    fresh: Mutex<Vec<Arc<Change>>>,
    /// The revision up to which all events are in the ring.
    complete_to: AtomicU64,
    /// The revision up to which all watchers have been told of what concerns them; never ahead of `complete_to`.
    progress: AtomicU64,
    objects: AtomicUsize,
    events: AtomicU64,
    pub(super) index: Index,
}

struct Recent {
    items: VecDeque<Arc<Change>>,
    bytes: usize,
    /// All events after this revision are in `items`.
    after: Revision,
}

/// The ring begins after the revision that was asked for.
pub(super) struct RevisionTooOld;

impl Ring {
    pub fn new(after: Revision, field: Option<&'static IndexedField>) -> Ring {
        Ring {
            recent: RwLock::new(Recent {
                items: VecDeque::new(),
                bytes: 0,
                after,
            }),
            fresh: Mutex::default(),
            complete_to: AtomicU64::new(after),
            progress: AtomicU64::new(after),
            objects: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            index: Index::new(field),
        }
    }

    /// Adds events in order. Watchers hear of them by the following [`Ring::advance`].
    pub fn append(&self, events: impl Iterator<Item = Event>) {
        let mut recent = self.recent.write();
        let mut fresh = self.fresh.lock();
        for event in events {
            self.count(&event);
            let change = Arc::new(Change::new(event));
            recent.push(change.clone());
            fresh.push(change);
        }
    }

    /// Declares the ring complete up to `revision`, and wakes those whom the new events may concern: a write stirs
    /// neither the watchers of other resources nor those of other objects.
    pub fn advance(&self, revision: Revision) {
        self.complete_to.store(revision, Ordering::Release);
        let fresh = std::mem::take(&mut *self.fresh.lock());
        if !fresh.is_empty() {
            self.index.notify(&fresh);
        }
        self.progress.store(revision, Ordering::Release);
    }

    /// Forgets what is no longer fresh.
    pub fn trim(&self, now: Instant) {
        let is_stale = |change: &Arc<Change>| now.saturating_duration_since(change.at) > FRESH;
        if self.recent.read().items.front().is_some_and(is_stale) {
            self.recent.write().drop_while(is_stale);
        }
    }

    /// Empties the ring, for instance after the store's history was lost; every watcher falls behind.
    pub fn reset(&self, revision: Revision) {
        {
            let mut recent = self.recent.write();
            recent.items.clear();
            recent.bytes = 0;
            recent.after = revision;
        }
        self.fresh.lock().clear();
        self.complete_to.store(revision, Ordering::Release);
        self.index.lose_all();
        self.progress.store(revision, Ordering::Release);
    }

    /// About how many objects the resource has. Good enough to tell a large list from a small one.
    pub fn objects(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }

    /// How many changes of them there have been since the start.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    pub(super) fn count_objects(&self, objects: usize) {
        self.objects.store(objects, Ordering::Relaxed);
    }

    fn count(&self, event: &Event) {
        let counted = |objects: usize| match (&event.previous, &event.current) {
            (None, Some(_)) => objects + 1,
            (Some(_), None) => objects.saturating_sub(1),
            _ => objects,
        };
        // Only the hub writes here.
        self.count_objects(counted(self.objects()));
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// The field by whose value watchers are indexed, if there is one.
    pub fn indexed_field(&self) -> Option<&'static str> {
        self.index.field()
    }

    pub(super) fn progress(&self) -> Revision {
        self.progress.load(Ordering::Acquire)
    }

    /// Whether all events after a revision are there.
    pub(super) fn holds(&self, after: Revision) -> bool {
        after >= self.recent.read().after
    }

    /// All events after a revision, and the revision they are complete to.
    pub(super) fn scan(&self, after: Revision) -> Result<(Vec<Arc<Change>>, Revision), RevisionTooOld> {
        let complete_to = self.complete_to.load(Ordering::Acquire);
        let recent = self.recent.read();
        if after < recent.after {
            return Err(RevisionTooOld);
        }
        let (start, end) = (recent.position(after), recent.position(complete_to));
        let found = recent.items.range(start..end.max(start)).cloned().collect();
        Ok((found, complete_to))
    }

    /// The events of these revisions, which are in order.
    pub(super) fn pick(&self, revisions: &[Revision]) -> Result<Vec<Arc<Change>>, RevisionTooOld> {
        let recent = self.recent.read();
        let mut found = Vec::with_capacity(revisions.len());
        for &revision in revisions {
            if revision <= recent.after {
                return Err(RevisionTooOld);
            }
            let start = recent.position(revision - 1);
            let same = |change: &&Arc<Change>| change.event.revision == revision;
            found.extend(recent.items.range(start..).take_while(same).cloned());
        }
        Ok(found)
    }
}

impl Recent {
    fn push(&mut self, change: Arc<Change>) {
        self.bytes += size(&change);
        self.items.push_back(change);
        while self.items.len() > CAPACITY || (self.items.len() > 1 && self.bytes > CAPACITY_BYTES) {
            self.drop_oldest();
        }
        if let Some(older) = self.items.len().checked_sub(FRAMED + 1)
            && let Some(change) = self.items.get_mut(older)
            && change.has_frames()
        {
            // Those who are reading it keep it.
            *change = Arc::new(change.without_frames());
        }
    }

    fn drop_while(&mut self, is_dropped: impl Fn(&Arc<Change>) -> bool) {
        while self.items.len() > 1 && is_dropped(&self.items[0]) {
            self.drop_oldest();
        }
        // A burst makes the queue large; what it no longer needs goes back.
        if self.items.capacity() > 4 * self.items.len().max(FRAMED) {
            self.items.shrink_to(2 * self.items.len());
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(dropped) = self.items.pop_front() {
            self.bytes -= size(&dropped);
            self.after = dropped.event.revision;
        }
    }

    /// How many events there are up to a revision.
    fn position(&self, revision: Revision) -> usize {
        self.items.partition_point(|change| change.event.revision <= revision)
    }
}

/// What came before is counted with the event that brought it.
fn size(change: &Change) -> usize {
    let event = &change.event;
    let shown = event.current.as_ref().or(event.previous.as_ref());
    event.key.len() + shown.map_or(0, |entry| entry.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::change::Transition;

    fn ring_with(events: u64) -> Ring {
        let ring = Ring::new(0, None);
        let event = |revision| Event {
            revision,
            key: "/registry/things/one".into(),
            current: None,
            previous: None,
        };
        ring.append((1..=events).map(event));
        ring.advance(events);
        ring
    }

    #[test]
    fn what_is_no_longer_fresh_leaves_a_ring_that_has_room() {
        let ring = ring_with(10);
        ring.trim(Instant::now());
        assert!(ring.holds(0));
        ring.trim(Instant::now() + 2 * FRESH);
        assert!(!ring.holds(8));
        assert!(ring.holds(9), "the newest one stays");
    }

    #[test]
    fn only_the_newest_events_keep_their_frames() {
        let ring = ring_with(FRAMED as u64);
        let all = ring.scan(0).ok().unwrap().0;
        for change in &all {
            change.verbatim_frame(Transition::Deleted, bytes::Bytes::new);
        }
        let event = |revision| Event {
            revision,
            key: "/registry/things/one".into(),
            current: None,
            previous: None,
        };
        ring.append((FRAMED as u64 + 1..=FRAMED as u64 + 2).map(event));
        ring.advance(FRAMED as u64 + 2);
        let framed: Vec<bool> = ring
            .scan(0)
            .ok()
            .unwrap()
            .0
            .iter()
            .map(|change| change.has_frames())
            .collect();
        assert_eq!(framed[..3], [false, false, true]);
        assert!(all[0].has_frames(), "who reads it keeps it");
    }
}
