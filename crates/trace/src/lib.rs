//! Marks: which stage of the flow an object has reached, and when.
//!
//! Every layer records its marks through [`mark`]; nothing else is needed to appear in `karve trace`. Marks live in
//! one bounded ring per process, so recording is cheap, never blocks on IO and forgets the oldest first. A component
//! that runs alone sends the API server what [`since`] tells, where it is [`absorb`]ed; the API server and the kubelet
//! serve [`dump`], so that a client can join marks with the objects it finds in the API.
//!
//! This crate depends on none of the others but the clock.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use std::borrow::Cow;
use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The marks a process remembers; at about 200 bytes each the ring stays below 2 MB.
const CAPACITY: usize = 8192;

static RING: Mutex<Ring> = Mutex::new(Ring {
    marks: VecDeque::new(),
    recorded: 0,
});

struct Ring {
    marks: VecDeque<Mark>,
    /// How many there have been in all, the forgotten ones included.
    recorded: u64,
}

/// How far a reader of [`since`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u64);

/// One stage that an object has passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// The component and its stage, for example `kubelet/sandbox-ready`.
    pub stage: Cow<'static, str>,
    /// The object as `resource/namespace/name`, or `resource/name` where there is no namespace.
    pub object: String,
    /// The object's UID where the layer knows it: names are reused, UIDs are not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Records that `object` has just passed `stage`.
pub fn mark(stage: &'static str, object: impl Into<String>, uid: impl Into<String>) {
    mark_at(now_us(), stage, object, uid);
}

/// Records a stage that was passed at a known earlier time, such as the start of a request.
pub fn mark_at(at_us: u64, stage: &'static str, object: impl Into<String>, uid: impl Into<String>) {
    RING.lock().push(Mark {
        at_us,
        stage: Cow::Borrowed(stage),
        object: object.into(),
        uid: uid.into(),
    });
}

/// Records marks that another process has made.
pub fn absorb(marks: impl IntoIterator<Item = Mark>) {
    let mut ring = RING.lock();
    marks.into_iter().for_each(|mark| ring.push(mark));
}

/// At most `max` marks recorded after `cursor`, in the order of recording, and where to go on.
pub fn since(cursor: Cursor, max: usize) -> (Vec<Mark>, Cursor) {
    let ring = RING.lock();
    let oldest = ring.recorded - ring.marks.len() as u64;
    let from = cursor.0.max(oldest);
    let marks: Vec<Mark> = ring
        .marks
        .iter()
        .skip((from - oldest) as usize)
        .take(max)
        .cloned()
        .collect();
    let next = Cursor(from + marks.len() as u64);
    (marks, next)
}

impl Ring {
    fn push(&mut self, mark: Mark) {
        if self.marks.len() == CAPACITY {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
        self.recorded += 1;
    }
}

/// All remembered marks for which `wanted` holds, oldest first.
pub fn dump(wanted: impl Fn(&Mark) -> bool) -> Vec<Mark> {
    let mut found: Vec<Mark> = RING.lock().marks.iter().filter(|mark| wanted(mark)).cloned().collect();
    found.sort_by_key(|mark| mark.at_us);
    found
}

/// The current time in the unit of [`Mark::at_us`].
pub fn now_us() -> u64 {
    clock::since_epoch().as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_in_time_order_and_the_oldest_are_forgotten() {
        mark_at(2, "test/second", "pods/trace/a", "u");
        mark_at(1, "test/first", "pods/trace/a", "u");
        let stages: Vec<_> = dump(|mark| mark.object == "pods/trace/a")
            .into_iter()
            .map(|mark| mark.stage)
            .collect();
        assert_eq!(stages, ["test/first", "test/second"]);

        let (_, before) = since(Cursor::default(), usize::MAX);
        absorb([Mark {
            at_us: 3,
            stage: "elsewhere/third".into(),
            object: "pods/trace/a".to_owned(),
            uid: "u".to_owned(),
        }]);
        let (fresh, after) = since(before, usize::MAX);
        assert_eq!(fresh.len(), 1);
        assert_eq!(fresh[0].stage, "elsewhere/third");
        assert_eq!(since(after, usize::MAX), (Vec::new(), after));

        for at_us in 0..CAPACITY as u64 {
            mark_at(at_us, "test/flood", "pods/trace/b", "");
        }
        assert!(dump(|mark| mark.object == "pods/trace/a").is_empty());
        let (fresh, _) = since(after, 1);
        assert_eq!(fresh[0].at_us, 0, "what was forgotten is passed over");
    }
}
