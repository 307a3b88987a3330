//! One event, with the frames that were already made of it.

use std::sync::OnceLock;

use api::Resource;
use bytes::Bytes;
use parking_lot::Mutex;
use store::Event;

use super::filter::Transition;
use crate::negotiate::Wanted;
use crate::table::IncludeObject;

/// Frames in other forms than stored JSON that an event keeps; watchers that want further ones make their own.
const MAX_OTHER_FRAMES: usize = 8;

pub struct Change {
    pub event: Event,
    /// What is stored, as JSON.
    verbatim: [OnceLock<Bytes>; 3],
    others: Mutex<Vec<(Format, Bytes)>>,
}

/// What decides how a frame looks, beside the event itself.
#[derive(Clone, Copy)]
pub struct Format {
    /// Versions of one kind share a ring.
    pub resource: &'static Resource,
    pub wanted: Wanted,
    pub include_object: IncludeObject,
    pub transition: Transition,
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        std::ptr::eq(self.resource, other.resource)
            && self.wanted == other.wanted
            && self.include_object == other.include_object
            && self.transition == other.transition
    }
}

impl Change {
    pub fn new(event: Event) -> Change {
        Change {
            event,
            verbatim: Default::default(),
            others: Mutex::default(),
        }
    }

    /// The JSON frame for this transition, made on first use.
    pub fn json_frame(&self, transition: Transition) -> &Bytes {
        self.verbatim[transition as usize]
            .get_or_init(|| transition.json_frame(self.bytes(transition), self.event.revision))
    }

    /// The frame in some other form, made on first use and shared by all who want the same.
    pub fn frame(&self, format: Format, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut others = self.others.lock();
        if let Some((_, frame)) = others.iter().find(|(known, _)| *known == format) {
            return frame.clone();
        }
        let frame = make();
        if others.len() < MAX_OTHER_FRAMES {
            others.push((format, frame.clone()));
        }
        frame
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
