//! The end of the log, where batches are made durable. Used by the log thread only.

use std::io;
use std::sync::Arc;

use super::disk::DiskFile;
use super::files::Segment;
use super::volume::{Name, Volume};
use crate::Revision;

/// The file is filled with zeros this far ahead, though not much beyond the length of a segment: syncing data into existing blocks is faster than growing the file.
const GROW_BYTES: u64 = 1 << 20;

/// How many zeros are written at once.
const ZEROS: usize = 64 << 10;

pub(crate) struct Log {
    volume: Volume,
    segment_bytes: u64,
    tail: Option<Tail>,
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
    /// Nobody can tell what is on disk.
    Unknown(io::Error),
}

impl Log {
    pub fn new(volume: Volume, segment_bytes: u64, tail: Option<Tail>) -> Self {
        Log {
            volume,
            segment_bytes,
            tail,
            zeros: vec![0; ZEROS],
        }
    }

    /// Makes a sealed frame durable; returns the segment that it went to.
    pub fn append(&mut self, frame: &[u8], first_revision: Revision, at_ms: u64) -> Result<Segment, AppendError> {
        if self.tail.as_ref().is_none_or(|tail| tail.end >= self.segment_bytes) {
            self.roll(first_revision).map_err(AppendError::NothingWritten)?;
        }
        let Some(tail) = &mut self.tail else {
            return Err(AppendError::NothingWritten(io::Error::other("the log has no segment")));
        };
        tail.append(frame, GROW_BYTES.min(self.segment_bytes), &self.zeros)?;
        Ok(Segment {
            first: tail.first,
            bytes: tail.end,
            at_ms,
        })
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

impl Tail {
    fn append(&mut self, frame: &[u8], grow_bytes: u64, zeros: &[u8]) -> Result<(), AppendError> {
        let end = self.end + frame.len() as u64;
        let allocated = match end > self.allocated {
            true => end.next_multiple_of(grow_bytes),
            false => self.allocated,
        };
        let mut written = self.file.write_at(frame, self.end);
        if allocated > self.allocated {
            written = written.and_then(|()| self.fill(end, allocated, zeros));
        }
        if let Err(error) = written {
            return Err(self.take_back(error));
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

    /// Removes what a failed write may have left, so that it cannot come back after a restart.
    fn take_back(&mut self, error: io::Error) -> AppendError {
        match self.file.truncate(self.end).and_then(|()| self.file.sync()) {
            Ok(()) => {
                self.allocated = self.end;
                AppendError::NothingWritten(error)
            }
            Err(_) => AppendError::Unknown(error),
        }
    }
}
