//! What happens beside the writes: compaction, the space set aside for it, and a look at whether the files are still there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::archive::Archive;
use super::files::Limits;
use super::log_thread::LogEvent;
use super::mark::Mark;
use super::reserve;
use super::watch::blocking;
use super::writer::Writer;
use crate::expiry::now_ms;
use crate::{Revision, StoreError};

/// The mark is synced this often while there are writes.
const TICK: Duration = Duration::from_secs(1);
/// Every so many ticks it is looked whether the log still has its name, and whether compaction is due.
const PLACE_TICKS: u64 = 5;
const COMPACT_TICKS: u64 = 60;

/// History takes at most this share of the space that the disk has for it.
const DISK_SHARE: u64 = 4;
/// On a full disk, fewer bytes of history than this are not worth a checkpoint.
const FULL_WORTH: u64 = 256 << 10;

/// How often during the age of history it is noted which revision is the newest.
const AGE_NOTES: usize = 5;
const LEAST_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Housekeeping {
    pub archive: Arc<Archive>,
    pub writer: Arc<Writer>,
    pub mark: Option<Arc<Mark>>,
    pub limits: Limits,
    pub wake: Notify,
    /// A batch did not fit on the disk.
    pub is_full: AtomicBool,
    pub roll_request: Arc<AtomicBool>,
}

impl Housekeeping {
    pub fn hear(&self, event: LogEvent) {
        match event {
            // The log grows by segments, so that is when to look.
            LogEvent::Stored(segment) => {
                if self.archive.files.write().note(segment) {
                    self.wake.notify_one();
                }
            }
            LogEvent::Full => {
                self.is_full.store(true, Ordering::Relaxed);
                self.wake.notify_one();
            }
        }
    }

    /// Compacts at start, then when the log has grown, when the disk is full, and now and then.
    pub async fn run(self: Arc<Self>) {
        let mut tick = 0u64;
        loop {
            let compacts = tick.is_multiple_of(COMPACT_TICKS);
            let looks = tick.is_multiple_of(PLACE_TICKS);
            if compacts {
                self.on_disk(Self::compact_if_due).await;
            }
            if looks {
                self.on_disk(Self::check_place).await;
            }
            if self.mark.as_ref().is_some_and(|mark| mark.needs_sync()) {
                self.on_disk(Self::sync_mark).await;
            }
            tokio::select! {
                () = sleep(TICK) => tick += 1,
                () = self.wake.notified() => self.on_disk(Self::compact_if_due).await,
                () = self.archive.shared.ended() => return,
            }
        }
    }

    async fn on_disk(self: &Arc<Self>, work: fn(&Self) -> Result<(), StoreError>) {
        let this = self.clone();
        if let Err(error) = blocking(move || work(&this)).await {
            tracing::warn!(%error, "Failed to compact the files of the store; retrying");
        }
    }

    fn sync_mark(&self) -> Result<(), StoreError> {
        match &self.mark {
            Some(mark) => Ok(mark.sync()?),
            None => Ok(()),
        }
    }

    fn check_place(&self) -> Result<(), StoreError> {
        let last = self.archive.files.read().segments.last().map(|segment| segment.first);
        if let Some(first) = last
            && let Err(error) = self.archive.volume.check_in_place(first)
        {
            self.writer.suspend(error.to_string());
        }
        Ok(())
    }

    fn compact_if_due(&self) -> Result<(), StoreError> {
        self.archive.remove_obsolete();
        let compacted = match self.due() {
            Some(revision) => self.archive.compact_to(revision),
            None => Ok(()),
        };
        // Without a reserve everything goes on; only compaction on a full disk does not.
        if let Err(error) = reserve::keep(&self.archive.volume, &self.archive.shared.state()) {
            tracing::debug!(%error, "Failed to reserve disk space for compaction");
        }
        compacted
    }

    /// The revision to compact to now, if it is worth it.
    fn due(&self) -> Option<Revision> {
        let state = self.archive.shared.state();
        let files = self.archive.files.read();
        let log_bytes: u64 = files.segments.iter().map(|segment| segment.bytes).sum();
        if self.is_full.swap(false, Ordering::Relaxed) && log_bytes > FULL_WORTH {
            self.roll_request.store(true, Ordering::Relaxed);
            return Some(state.revision);
        }
        let mut limits = self.limits;
        if let Some(free) = self.archive.volume.disk.free_bytes() {
            let share = (free + log_bytes) / DISK_SHARE;
            limits.most_bytes = limits.most_bytes.min(share.max(limits.least_bytes));
        }
        files.plan_compaction(state.bytes, now_ms(), limits)
    }
}

/// Clients are refused what is older than `age` even while it is still on the disk, so that what they can count on does
/// not hang on how much others write.
pub(crate) async fn forget_when_old(archive: Arc<Archive>, age: Duration) {
    let pause = (age / AGE_NOTES as u32).max(LEAST_PAUSE);
    let mut noted = VecDeque::with_capacity(AGE_NOTES + 1);
    loop {
        tokio::select! {
            () = sleep(pause) => (),
            () = archive.shared.ended() => return,
        }
        noted.push_back(archive.shared.state().revision);
        if noted.len() > AGE_NOTES
            && let Some(old) = noted.pop_front()
        {
            archive.forget_before(old);
        }
    }
}
