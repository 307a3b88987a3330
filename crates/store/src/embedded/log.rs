//! The end of the log, where batches are made durable. Used by the log thread only.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::disk::DiskFile;
use super::files::Segment;
use super::frame::{self, Kind, Parsed};
use super::volume::{Name, Volume, read_whole};
use crate::Revision;

/// The file is filled with zeros this far ahead, though not much beyond the length of a segment: syncing data into existing blocks is faster than growing the file.
const GROW_BYTES: u64 = 1 << 20;

/// How many zeros are written at once.
const ZEROS: usize = 64 << 10;

pub(crate) struct Log {
    volume: Volume,
    segment_bytes: u64,
    tail: Option<Tail>,
    /// What lies behind the tail's end is not known, because a sync failed.
    is_unknown: bool,
    /// Set by compaction, which removes whole segments only, when the present one should end.
    must_roll: Arc<AtomicBool>,
    /// What files are filled with. It is never written to, so that it takes no memory.
    zeros: Vec<u8>,
}

/// The segment that is being written.
pub(crate) struct Tail {
    /// The revision that the segment begins with.
    pub first: Revision,
    pub file: Arc<dyn DiskFile>,
    /// Where the next frame goes.
    pub end: u64,
    /// The length of the file; all zeros from `end` on.
    pub allocated: u64,
}

/// Why a batch is not durable.
pub(crate) enum AppendError {
    /// There is no trace of it on disk; the next one may succeed.
    NothingWritten(io::Error),
    /// Nobody can tell what is on disk until [`Log::mend`] succeeds.
    Unknown(io::Error),
}

impl Log {
    pub fn new(volume: Volume, segment_bytes: u64, tail: Option<Tail>) -> Self {
        Log {
            volume,
            segment_bytes,
            tail,
            is_unknown: false,
            must_roll: Arc::default(),
            zeros: vec![0; ZEROS],
        }
    }

    /// Setting it makes the next batch begin a new segment.
    pub fn roll_request(&self) -> Arc<AtomicBool> {
        self.must_roll.clone()
    }

    /// Makes a sealed frame durable; returns the segment that it went to.
    pub fn append(&mut self, frame: &[u8], first_revision: Revision, at_ms: u64) -> Result<Segment, AppendError> {
        let must_roll = self.must_roll.swap(false, Ordering::Relaxed);
        let ends = |tail: &Tail| tail.end >= self.segment_bytes || must_roll && tail.end > 0;
        if self.tail.as_ref().is_none_or(ends) {
            self.roll(first_revision).map_err(AppendError::NothingWritten)?;
        }
        let Some(tail) = &mut self.tail else {
            return Err(AppendError::NothingWritten(io::Error::other("the log has no segment")));
        };
        let appended = tail.append(frame, GROW_BYTES.min(self.segment_bytes), &self.zeros);
        if let Err(AppendError::Unknown(_)) = &appended {
            self.is_unknown = true;
        }
        appended?;
        Ok(Segment {
            first: tail.first,
            bytes: tail.end,
            at_ms,
        })
    }

    /// Makes the log fit for the batch that begins with revision `next`, after one failed: takes back what a failed sync
    /// may have left, reads back what was durable before it, and finds out whether there is space again.
    pub fn mend(&mut self, next: Revision) -> io::Result<()> {
        if let Some(tail) = &mut self.tail {
            self.volume.check_in_place(tail.first)?;
            if self.is_unknown {
                tail.cut()?;
                verify(&self.volume, tail)?;
            }
        }
        let is_full = |tail: &Tail| tail.end >= self.segment_bytes;
        if self.is_unknown || self.tail.as_ref().is_none_or(is_full) {
            self.roll(next)?;
            self.is_unknown = false;
        }
        match &mut self.tail {
            Some(tail) => tail.extend(&self.zeros),
            None => Ok(()),
        }
    }

    /// Begins the next segment. The old one stays in use if that fails.
    fn roll(&mut self, first: Revision) -> io::Result<()> {
        let file = self.volume.disk.create(&Name::segment(first))?;
        self.volume.disk.sync_names()?;
        let full = self.tail.replace(Tail {
            first,
            file,
            end: 0,
            allocated: 0,
        });
        if let Some(full) = full {
            // Only to give back the zeros at its end, so nothing depends on it.
            let _ = full.file.truncate(full.end);
        }
        Ok(())
    }
}

/// Everything up to the tail's end was synced before the sync that failed. A disk that fails may have lost it all the
/// same; then writing on would bury the loss.
fn verify(volume: &Volume, tail: &Tail) -> io::Result<()> {
    let _ = tail.file.drop_cache();
    let mut data = Vec::new();
    read_whole(&*tail.file, &mut data)?;
    let mut offset = 0;
    while let Parsed::Frame { end, .. } = frame::parse(&data, offset, Kind::Log, volume.salt) {
        offset = end;
    }
    if offset as u64 == tail.end {
        return Ok(());
    }
    let path = volume.disk.path(&Name::segment(tail.first));
    let why = format!(
        "{path} reads back only to byte {offset} of {}: the disk has lost what it had confirmed",
        tail.end
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

impl Tail {
    fn append(&mut self, frame: &[u8], grow_bytes: u64, zeros: &[u8]) -> Result<(), AppendError> {
        let end = self.end + frame.len() as u64;
        let mut allocated = self.allocated.max(end);
        if let Err(error) = self.file.write_at(frame, self.end) {
            return Err(self.take_back(error));
        }
        if end > self.allocated {
            // Without the zeros ahead only the next batch is slower, so a disk that has no space for them has no say.
            allocated = end.next_multiple_of(grow_bytes);
            if self.fill(end, allocated, zeros).is_err() {
                allocated = end;
            }
        }
        // What a failed sync leaves on disk is unknown, and a second sync that succeeds does not tell either.
        self.file.sync().map_err(AppendError::Unknown)?;
        self.allocated = allocated;
        self.end = end;
        Ok(())
    }

    fn fill(&self, mut from: u64, to: u64, zeros: &[u8]) -> io::Result<()> {
        while from < to {
            let length = zeros.len().min((to - from) as usize);
            self.file.write_at(&zeros[..length], from)?;
            from += length as u64;
        }
        Ok(())
    }

    /// Makes sure that a small batch would find space.
    fn extend(&mut self, zeros: &[u8]) -> io::Result<()> {
        let wanted = self.end + zeros.len() as u64;
        if wanted > self.allocated {
            self.fill(self.allocated, wanted, zeros)?;
            self.file.sync()?;
            self.allocated = wanted;
        }
        Ok(())
    }

    /// Removes what a failed write may have left, so that it cannot come back after a restart.
    fn take_back(&mut self, error: io::Error) -> AppendError {
        match self.cut() {
            Ok(()) => AppendError::NothingWritten(error),
            Err(_) => AppendError::Unknown(error),
        }
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.truncate(self.end)?;
        self.allocated = self.end;
        self.file.sync()
    }
}
