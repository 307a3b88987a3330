//! The recent past: a bounded ring of commits that watches and older snapshots are read from.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{Event, EventBatch, Revision};

/// What the ring may hold on top of the current state unless told otherwise: superseded values and the events themselves.
pub(crate) const HISTORY_BYTES: usize = 32 << 20;

/// Events older than this leave the ring even when there is room; clients resume well within it.
pub(crate) const HISTORY_AGE_MS: u64 = 5 * 60 * 1000;

/// A reader is given at most about this many events at once (a revision is never split).
pub(crate) const BATCH_EVENTS: usize = 1024;

/// What one event costs beyond the value that it superseded.
const EVENT_BYTES: usize = 160;

/// The events of one revision.
#[derive(Debug)]
pub(crate) struct Commit {
    pub revision: Revision,
    pub at_ms: u64,
    pub events: Vec<Event>,
}

impl Commit {
    fn bytes(&self) -> usize {
        // `current` is not counted: it is either the live state's or some later event's `previous`.
        let previous = |event: &Event| event.previous.as_ref().map_or(0, |entry| entry.value.len());
        self.events.iter().map(|event| EVENT_BYTES + previous(event)).sum()
    }
}

pub(crate) struct History {
    commits: VecDeque<Arc<Commit>>,
    bytes: usize,
    most_bytes: usize,
    /// Every event after this revision is held.
    floor: Revision,
    /// The revision up to which the ring is complete; ahead of the last commit when nothing of ours changed.
    head: Revision,
}

impl History {
    pub fn new(revision: Revision, most_bytes: usize) -> Self {
        History {
            commits: VecDeque::new(),
            bytes: 0,
            most_bytes,
            floor: revision,
            head: revision,
        }
    }

    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// Forgets everything and goes on from `revision`.
    pub fn restart(&mut self, revision: Revision) {
        *self = History::new(revision, self.most_bytes);
    }

    pub fn push(&mut self, commit: Commit) {
        self.head = self.head.max(commit.revision);
        self.bytes += commit.bytes();
        self.commits.push_back(Arc::new(commit));
    }

    pub fn advance(&mut self, head: Revision) {
        self.head = self.head.max(head);
    }

    /// Drops what exceeds the bounds. The newest commit always stays.
    pub fn trim(&mut self, now_ms: u64) {
        let oldest_ms = now_ms.saturating_sub(HISTORY_AGE_MS);
        while self.commits.len() > 1 && (self.bytes > self.most_bytes || self.commits[0].at_ms < oldest_ms) {
            self.drop_oldest();
        }
    }

    /// Forgets everything up to and including `revision`.
    pub fn forget(&mut self, revision: Revision) {
        while self.commits.front().is_some_and(|commit| commit.revision <= revision) {
            self.drop_oldest();
        }
        self.floor = self.floor.max(revision);
    }

    /// All commits after `revision`, or `None` when some of them are no longer held.
    pub fn since(&self, revision: Revision) -> Option<Vec<Arc<Commit>>> {
        (revision >= self.floor).then(|| self.commits.range(self.position(revision)..).cloned().collect())
    }

    /// The next commits for a reader that has seen everything up to `revision`.
    pub fn next(&self, revision: Revision) -> Option<Page> {
        if revision < self.floor {
            return None;
        }
        let mut page = Page {
            commits: Vec::new(),
            complete_to: revision,
        };
        let mut events = 0;
        for commit in self.commits.range(self.position(revision)..) {
            if events >= BATCH_EVENTS {
                return Some(page);
            }
            events += commit.events.len();
            page.complete_to = commit.revision;
            page.commits.push(commit.clone());
        }
        page.complete_to = self.head.max(revision);
        Some(page)
    }

    fn position(&self, revision: Revision) -> usize {
        self.commits.partition_point(|commit| commit.revision <= revision)
    }

    fn drop_oldest(&mut self) {
        if let Some(commit) = self.commits.pop_front() {
            self.bytes -= commit.bytes();
            self.floor = commit.revision;
        }
    }
}

/// Commits taken out of the ring by reference, so that copying their events needs no lock.
pub(crate) struct Page {
    commits: Vec<Arc<Commit>>,
    complete_to: Revision,
}

impl Page {
    pub fn complete_to(&self) -> Revision {
        self.complete_to
    }

    pub fn into_batch(self) -> EventBatch {
        let events = self
            .commits
            .iter()
            .flat_map(|commit| commit.events.iter().cloned())
            .collect();
        EventBatch {
            events,
            complete_to: self.complete_to,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Entry;

    fn commit(revision: Revision, at_ms: u64, superseded: usize) -> Commit {
        let previous = Entry {
            key: "k".into(),
            value: Bytes::from(vec![0; superseded]),
            create_revision: 1,
            mod_revision: revision - 1,
            expires_at_ms: 0,
        };
        let event = Event {
            revision,
            key: "k".into(),
            current: None,
            previous: Some(Arc::new(previous)),
        };
        Commit {
            revision,
            at_ms,
            events: vec![event],
        }
    }

    #[test]
    fn the_ring_is_bounded_by_superseded_bytes_and_by_age() {
        let mut history = History::new(10, HISTORY_BYTES);
        for revision in 11..=20 {
            history.push(commit(revision, revision, HISTORY_BYTES / 4));
            history.trim(revision);
        }
        assert_eq!(
            history.floor(),
            17,
            "three commits of a quarter of the bound each are left"
        );

        history.trim(19 + HISTORY_AGE_MS);
        assert_eq!(history.floor(), 18);
        history.trim(u64::MAX);
        assert_eq!(history.floor(), 19, "the newest commit stays");
    }

    #[test]
    fn readers_get_whole_revisions_in_pages_and_none_below_the_floor() {
        let mut history = History::new(0, HISTORY_BYTES);
        for revision in 1..=(BATCH_EVENTS as u64 + 5) {
            history.push(commit(revision, 0, 0));
        }
        let page = history.next(0).unwrap();
        assert_eq!(
            (page.commits.len(), page.complete_to),
            (BATCH_EVENTS, BATCH_EVENTS as u64)
        );
        let page = history.next(page.complete_to).unwrap();
        assert_eq!((page.commits.len(), page.complete_to), (5, BATCH_EVENTS as u64 + 5));

        history.forget(3);
        assert!(history.next(2).is_none());
        assert_eq!(history.next(3).unwrap().commits[0].revision, 4);
    }
}
