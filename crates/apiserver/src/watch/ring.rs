//! The recent events of one resource, held once for all its watchers.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;
use store::{Event, Revision};
use tokio::sync::watch;

use super::filter::Transition;

/// Events a ring remembers. Watchers further behind catch up from the store's own history.
const CAPACITY: usize = 4096;

/// One event, with the frames that were already made of it.
pub struct Change {
    pub event: Event,
    frames: [OnceLock<Bytes>; 3],
}

pub struct Ring {
    changes: RwLock<Changes>,
    /// The revision up to which the ring is complete; also the signal that wakes watchers.
    complete_to: watch::Sender<Revision>,
}

struct Changes {
    items: VecDeque<Arc<Change>>,
    /// All events after this revision are in `items`.
    after: Revision,
}

/// What a cursor finds when it looks.
pub enum Read {
    Changes {
        changes: Vec<Arc<Change>>,
        complete_to: Revision,
    },
    /// The cursor's revision has left the ring.
    Behind,
}

impl Change {
    pub fn new(event: Event) -> Change {
        Change {
            event,
            frames: Default::default(),
        }
    }

    /// The JSON frame for this transition, made on first use.
    pub fn json_frame(&self, transition: Transition) -> &Bytes {
        self.frames[transition as usize].get_or_init(|| {
            let stored = self.bytes(transition);
            let mut frame = Vec::with_capacity(stored.len() + 64);
            frame.extend_from_slice(b"{\"type\":\"");
            frame.extend_from_slice(transition.name().as_bytes());
            frame.extend_from_slice(b"\",\"object\":");
            schema::write_with_resource_version(&mut frame, stored, self.event.revision);
            frame.extend_from_slice(b"}\n");
            frame.into()
        })
    }

    /// The state the event shows: the last one known when the object left.
    pub fn bytes(&self, transition: Transition) -> &Bytes {
        let entry = match transition {
            Transition::Deleted => self.event.previous.as_ref(),
            _ => self.event.current.as_ref(),
        };
        static NOTHING: Bytes = Bytes::new();
        entry.map_or(&NOTHING, |entry| &entry.value)
    }
}

impl Ring {
    pub fn new(after: Revision) -> Ring {
        Ring {
            changes: RwLock::new(Changes {
                items: VecDeque::new(),
                after,
            }),
            complete_to: watch::Sender::new(after),
        }
    }

    /// Adds events in order. Watchers are woken by the following [`Ring::advance`].
    pub fn append(&self, events: impl Iterator<Item = Event>) {
        let mut changes = self.changes.write();
        for event in events {
            if changes.items.len() == CAPACITY
                && let Some(dropped) = changes.items.pop_front()
            {
                changes.after = dropped.event.revision;
            }
            changes.items.push_back(Arc::new(Change::new(event)));
        }
    }

    /// Declares the ring complete up to `revision`. Wakes watchers only when there is something new for them, so that
    /// a write to one resource does not stir the watchers of all others.
    pub fn advance(&self, revision: Revision, wake: bool) {
        self.complete_to.send_if_modified(|current| {
            *current = revision;
            wake
        });
    }

    /// Empties the ring, for instance after the store's history was lost; every cursor falls behind.
    pub fn reset(&self, revision: Revision) {
        let mut changes = self.changes.write();
        changes.items.clear();
        changes.after = revision;
        drop(changes);
        self.advance(revision, true);
    }

    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.complete_to.subscribe()
    }

    /// The events after `revision`.
    pub fn read(&self, after: Revision) -> Read {
        let complete_to = *self.complete_to.borrow();
        let changes = self.changes.read();
        if after < changes.after {
            return Read::Behind;
        }
        let start = changes.items.partition_point(|change| change.event.revision <= after);
        let end = changes
            .items
            .partition_point(|change| change.event.revision <= complete_to);
        let found = changes.items.range(start..end.max(start)).cloned().collect();
        Read::Changes {
            changes: found,
            complete_to,
        }
    }
}
