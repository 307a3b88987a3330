//! The thread that makes batches durable one after the other, and that brings the log back after the disk failed.
//!
//! After a failed write there is no trace of the batch, or the log is cut back to where it was. After a failed sync nobody
//! knows what is on disk: the log is cut back, read again, and goes on in a new file. Until that succeeds, no write is taken.

use std::io;

use super::disk::is_full;
use super::files::Segment;
use super::frame::{self, Kind, Salt};
use super::log::{AppendError, Log};
use super::mark::Mark;
use super::writer::{Batch, Gate, Work, Writer};
use crate::{Revision, StoreError};

/// A buffer that has grown beyond this is not kept for the next batch.
const SPARE_BYTES: usize = 1 << 20;

/// What the rest of the store hears of the log.
pub(crate) enum LogEvent {
    /// A batch is durable; this is where it went.
    Stored(Segment),
    /// A batch did not fit on the disk.
    Full,
}

pub(crate) struct LogThread<'a> {
    pub writer: &'a Writer,
    pub log: Log,
    pub salt: Salt,
    pub mark: Option<&'a Mark>,
    /// The last batch failed.
    pub has_failed: bool,
}

impl LogThread<'_> {
    /// Works until the store is closed.
    pub fn run(mut self, mut tell: impl FnMut(LogEvent)) {
        let _ended = Ended(self.writer);
        let mut spare = Vec::new();
        loop {
            frame::begin(&mut spare);
            spare = match self.writer.next_work(spare) {
                Work::End => return,
                Work::Append(batch) => self.commit(batch, &mut tell),
                Work::Mend => {
                    self.try_to_mend();
                    Vec::new()
                }
            };
        }
    }

    /// Makes one batch durable and answers; returns the buffer for another one.
    fn commit(&mut self, mut batch: Batch, tell: &mut impl FnMut(LogEvent)) -> Vec<u8> {
        match append(&mut self.log, &mut batch, self.salt) {
            Ok(segment) => {
                if let Some(segment) = segment {
                    self.note(batch.state.revision);
                    tell(LogEvent::Stored(segment));
                }
                let spare = self.writer.publish(batch);
                match spare.capacity() > SPARE_BYTES {
                    true => Vec::new(),
                    false => spare,
                }
            }
            Err(AppendError::NothingWritten(error)) => {
                if is_full(&error) {
                    tell(LogEvent::Full);
                }
                self.refuse(batch, &error);
                Vec::new()
            }
            Err(AppendError::Unknown(error)) => {
                self.after_failed_sync(batch, &error);
                Vec::new()
            }
        }
    }

    /// The batch is durable.
    fn note(&mut self, revision: Revision) {
        if self.has_failed {
            self.recovered();
        }
        if let Some(mark) = self.mark
            && let Err(error) = mark.advance(revision)
        {
            tracing::warn!(%error, revision, "Failed to record the last acknowledged revision");
        }
    }

    fn refuse(&mut self, batch: Batch, error: &io::Error) {
        self.has_failed = true;
        tracing::error!(%error, "Failed to write to the log of the store; writes are refused until the disk works again");
        let why = format!("the log cannot be written: {error}");
        let unavailable = || StoreError::Unavailable(why.clone());
        self.writer
            .reject(batch, Gate::Open, why.clone(), unavailable, unavailable);
    }

    fn after_failed_sync(&mut self, batch: Batch, error: &io::Error) {
        self.has_failed = true;
        let why = format!("the log could not be synced: {error}");
        if self.log.mend(self.next_revision()).is_ok() {
            tracing::error!(%error, "Failed to sync the log of the store; truncated it and continued in a new file");
            let unavailable = || StoreError::Unavailable(why.clone());
            return self
                .writer
                .reject(batch, Gate::Open, why.clone(), unavailable, unavailable);
        }
        tracing::error!(%error, "Failed to sync the log of the store; writes are refused until the disk works again");
        let unknown = || StoreError::Unknown(why.clone());
        let read_only = || StoreError::ReadOnly(why.clone());
        let gate = Gate::ReadOnly(why.clone());
        self.writer.reject(batch, gate, why.clone(), unknown, read_only);
    }

    fn try_to_mend(&mut self) {
        match self.log.mend(self.next_revision()) {
            Ok(()) => self.recovered(),
            Err(error) => self.writer.still_failing(format!("the log cannot be written: {error}")),
        }
    }

    fn recovered(&mut self) {
        self.has_failed = false;
        if let Some(why) = self.writer.recovered() {
            tracing::info!(cause = why, "The store accepts writes again");
        }
    }

    fn next_revision(&self) -> Revision {
        self.writer.published().revision + 1
    }
}

/// Refuses writes when the log thread ends, be it by a panic: nobody would answer them.
struct Ended<'a>(&'a Writer);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end("the log thread has ended; restart");
    }
}

fn append(log: &mut Log, batch: &mut Batch, salt: Salt) -> Result<Option<Segment>, AppendError> {
    let Some(first) = batch.commits.first() else {
        return Ok(None);
    };
    let (first_revision, at_ms): (Revision, u64) = (first.revision, first.at_ms);
    frame::seal(&mut batch.frame, Kind::Log, first_revision, at_ms, salt);
    log.append(&batch.frame, first_revision, at_ms).map(Some)
}
