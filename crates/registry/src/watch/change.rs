//! One event, with the frames that were already made of it.

use std::sync::OnceLock;

use api::Resource;
use bytes::Bytes;
use parking_lot::Mutex;
use store::Event;
use tokio::time::Instant;

/// Frames in other forms than stored JSON that an event keeps; watchers that want further ones make their own.
const MAX_OTHER_FRAMES: usize = 8;

pub struct Change {
    pub event: Event,
    /// When it came to this process.
    pub at: Instant,
    /// Frames of what is stored as it is, by transition.
    verbatim: [OnceLock<Bytes>; 3],
    others: Mutex<Vec<(FrameForm, Bytes)>>,
}

/// How an event is rendered, beside what it says. Equal forms of one event are equal bytes.
#[derive(Clone, Copy)]
pub struct FrameForm {
    /// Versions of one kind share a ring.
    pub resource: &'static Resource,
    pub transition: Transition,
    /// Encoding and shape, numbered by whoever makes the frames; nothing here knows what they mean.
    pub rendering: u32,
}

/// What happened from one watcher's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    Added = 0,
    Modified = 1,
    Deleted = 2,
}

impl PartialEq for FrameForm {
    fn eq(&self, other: &FrameForm) -> bool {
        std::ptr::eq(self.resource, other.resource)
            && self.transition == other.transition
            && self.rendering == other.rendering
    }
}

impl Transition {
    pub fn name(self) -> &'static str {
        match self {
            Transition::Added => "ADDED",
            Transition::Modified => "MODIFIED",
            Transition::Deleted => "DELETED",
        }
    }
}

impl Change {
    pub fn new(event: Event) -> Change {
        Change {
            event,
            at: Instant::now(),
            verbatim: Default::default(),
            others: Mutex::default(),
        }
    }

    pub fn has_frames(&self) -> bool {
        self.verbatim.iter().any(|frame| frame.get().is_some()) || !self.others.lock().is_empty()
    }

    /// The same event, of which frames are made again when somebody wants them.
    pub fn without_frames(&self) -> Change {
        Change {
            event: self.event.clone(),
            at: self.at,
            verbatim: Default::default(),
            others: Mutex::default(),
        }
    }

    /// The frame that shows the object as it is stored, made on first use and shared by all watchers.
    pub fn verbatim_frame(&self, transition: Transition, make: impl FnOnce() -> Bytes) -> &Bytes {
        self.verbatim[transition as usize].get_or_init(make)
    }

    /// The frame in some other form, made on first use and shared by all who want the same.
    pub fn frame(&self, form: FrameForm, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut others = self.others.lock();
        if let Some((_, frame)) = others.iter().find(|(known, _)| *known == form) {
            return frame.clone();
        }
        let frame = make();
        if others.len() < MAX_OTHER_FRAMES {
            others.push((form, frame.clone()));
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
