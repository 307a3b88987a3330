//! One watcher's place in a ring.

use std::sync::Arc;

use store::Revision;
use tokio::sync::futures::Notified;

use super::change::Change;
use super::index::{Listener, Topic};
use super::ring::{RevisionTooOld, Ring};

/// What a follower finds when it looks.
pub enum Read {
    /// May hold changes that do not concern the topic, never less than those that do.
    Changes(Vec<Arc<Change>>),
    /// Something that concerns the topic has left the ring unread.
    Behind,
}

pub struct Follower {
    ring: Arc<Ring>,
    topic: Topic,
    listener: Arc<Listener>,
    at: Revision,
    /// What came before the listener was there is found by scanning the ring once.
    scanned: bool,
}

/// Rings when there is something to read, for a follower that is not read by one task alone.
pub struct WakeSignal(Arc<Listener>);

impl WakeSignal {
    /// Done at the first change after this call, whether or not it is awaited by then.
    pub fn woken(&self) -> Notified<'_> {
        self.0.changed.notified()
    }
}

impl Follower {
    /// Follows what concerns `topic` after the revision `at`.
    pub fn new(ring: Arc<Ring>, topic: Topic, at: Revision) -> Follower {
        Follower {
            listener: ring.index.add(&topic),
            ring,
            topic,
            at,
            scanned: false,
        }
    }

    pub fn wake_signal(&self) -> WakeSignal {
        WakeSignal(self.listener.clone())
    }

    /// Everything of the topic up to here has been read.
    pub fn at(&self) -> Revision {
        self.at
    }

    /// Goes on from another revision, for instance after catching up from elsewhere.
    pub fn restart(&mut self, at: Revision) {
        self.at = at;
        self.scanned = false;
    }

    /// Whether the ring begins only after where this is.
    pub fn is_behind(&self) -> bool {
        !self.ring.holds(self.at)
    }

    /// What is there now.
    pub fn read(&mut self) -> Read {
        let read = match (&self.topic, self.scanned) {
            (Topic::Everything, _) | (_, false) => self.scan(),
            (_, true) => self.read_inbox(),
        };
        read.map_or(Read::Behind, Read::Changes)
    }

    /// Waits until there is something. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Read {
        let listener = self.listener.clone();
        loop {
            let mut changed = std::pin::pin!(listener.changed.notified());
            // From here on no signal is lost.
            changed.as_mut().enable();
            match self.read() {
                Read::Changes(changes) if changes.is_empty() => changed.await,
                found => return found,
            }
        }
    }

    /// Waits until something has changed, for those who then read the store itself.
    pub async fn changed(&mut self) {
        if let Read::Behind = self.next().await {
            self.restart(self.ring.progress());
        }
    }

    /// The inbox is emptied first: whatever was told before is found by the scan.
    fn scan(&mut self) -> Result<Vec<Arc<Change>>, RevisionTooOld> {
        self.listener.take();
        let (changes, complete_to) = self.ring.scan(self.at)?;
        self.at = self.at.max(complete_to);
        self.scanned = true;
        Ok(changes)
    }

    /// The ring's progress is read first: whatever it counts has been told already.
    fn read_inbox(&mut self) -> Result<Vec<Arc<Change>>, RevisionTooOld> {
        let progress = self.ring.progress();
        let mut inbox = self.listener.take();
        if inbox.missed {
            return Err(RevisionTooOld);
        }
        // The scan, and the first of several events of one revision, have brought what is not newer.
        inbox.revisions.retain(|revision| *revision > self.at);
        let last = inbox.revisions.last().copied().unwrap_or_default();
        self.at = self.at.max(progress).max(last);
        match inbox.revisions.is_empty() {
            true => Ok(Vec::new()),
            false => self.ring.pick(&inbox.revisions),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.ring.index.remove(&self.topic, &self.listener);
    }
}
