//! Waiting for caches to show what was written: a plan made from an older state would do the same again.

use std::time::Duration;

use api::Resource;
use client::Key;
use tokio::time::Instant;

use super::setup::WatchedCache;

/// The pauses between looks: the watch usually brings the change at once, and with it the key.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A write that a cache must show before the key is planned again.
pub enum Await {
    /// The cache of the resource must have come to this revision.
    Revision(&'static Resource, u64),
    /// The cached object must be gone or differ from this revision.
    Change(&'static Resource, Key, String),
}

pub struct Awaits {
    writes: Vec<Await>,
    since: Instant,
    pause: Duration,
}

impl Awaits {
    pub fn new(writes: Vec<Await>) -> Awaits {
        Awaits {
            writes,
            since: Instant::now(),
            pause: FIRST_PAUSE,
        }
    }

    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long to wait before looking again; `None` when there is nothing left to wait for.
    pub fn pause(&mut self, caches: &[WatchedCache]) -> Option<Duration> {
        self.writes.retain(|write| !write.is_shown(caches));
        if self.writes.is_empty() {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

impl Await {
    /// Resources that the controller does not watch need no waiting.
    fn is_shown(&self, caches: &[WatchedCache]) -> bool {
        let (Await::Revision(resource, _) | Await::Change(resource, ..)) = self;
        let Some(cache) = caches.iter().find(|cache| std::ptr::eq(cache.resource, *resource)) else {
            return true;
        };
        match self {
            Await::Revision(_, revision) => cache.freshness.revision() >= *revision,
            Await::Change(_, key, revision) => cache.freshness.revision_of(key.as_str()).as_ref() != Some(revision),
        }
    }
}
