//! Opening: the newest checkpoint, then the log after it.
//!
//! A batch is written only after the one before it is durable. So a crash can leave at most one incomplete batch, the
//! last, which nobody was promised; it is cut off. Anything else that does not add up is damage, and then the store does not
//! open: better no answer than a wrong one.

use std::mem;

use super::Options;
use super::checkpoint;
use super::files::{Files, Segment};
use super::frame::{self, Kind, Parsed};
use super::log::{Log, Tail};
use super::mark;
use super::replay;
use super::volume::{Name, Volume, read_whole};
use crate::history::{Commit, History};
use crate::state::State;
use crate::{Revision, StoreError};

pub(crate) struct Recovered {
    pub state: State,
    pub history: History,
    pub files: Files,
    pub log: Log,
}

/// Brings the store back to its last durable revision.
pub(crate) fn recover(volume: &Volume, options: &Options, now_ms: u64) -> Result<Recovered, StoreError> {
    let (floor, firsts) = survey(volume)?;
    let state = match floor {
        0 => State::default(),
        _ => checkpoint::read(
            volume,
            &*volume.disk.open(&Name::checkpoint(floor))?,
            floor,
            &State::default(),
        )?,
    };
    let mut recovery = Recovery {
        volume,
        history: History::new(floor, options.memory_bytes),
        state,
        expected: firsts.first().copied().unwrap_or(floor + 1),
        segments: Vec::new(),
        tail: None,
        is_torn: false,
        buffer: Vec::new(),
        now_ms,
    };
    if recovery.expected > floor + 1 {
        return Err(recovery.gap(recovery.expected, floor + 1));
    }
    for (index, first) in firsts.iter().enumerate() {
        recovery.segment(*first, index + 1 == firsts.len())?;
    }
    let acknowledged = mark::read(volume)?.unwrap_or(0);
    let mut floor = floor;
    if acknowledged > recovery.state.revision {
        if options.accept_lost_to != Some(acknowledged) {
            return Err(recovery.lost(acknowledged));
        }
        floor = recovery.go_on_without(acknowledged, options)?;
    }
    if recovery.expected <= floor {
        // The log ends before the checkpoint, so it adds nothing, and what comes next does not follow it.
        recovery.remove_log()?;
    }
    recovery.cut_off()?;
    let log = Log::new(volume.clone(), options.segment_bytes, recovery.tail);
    let files = Files {
        floor,
        segments: recovery.segments,
    };
    Ok(Recovered {
        state: recovery.state,
        history: recovery.history,
        files,
        log,
    })
}

/// The newest checkpoint and the segments that are needed with it; what a crash left over is removed.
fn survey(volume: &Volume) -> Result<(Revision, Vec<Revision>), StoreError> {
    let mut floor = 0;
    let mut firsts = Vec::new();
    let names = volume.disk.names()?;
    for name in &names {
        match Name::parse(name) {
            Some(Name::Checkpoint(revision)) => floor = floor.max(revision),
            Some(Name::Segment(first)) => firsts.push(first),
            Some(Name::Unfinished) | None => (),
        }
    }
    firsts.sort_unstable();
    let obsolete = firsts.windows(2).take_while(|pair| pair[1] <= floor + 1).count();
    for name in &names {
        let left_over = match Name::parse(name) {
            Some(Name::Unfinished) => true,
            Some(Name::Checkpoint(revision)) => revision < floor,
            Some(Name::Segment(first)) => firsts[..obsolete].contains(&first),
            None => false,
        };
        if left_over {
            volume.disk.remove(name)?;
        }
    }
    Ok((floor, firsts.split_off(obsolete)))
}

struct Recovery<'a> {
    volume: &'a Volume,
    state: State,
    history: History,
    /// The revision that the next frame begins with.
    expected: Revision,
    segments: Vec<Segment>,
    tail: Option<Tail>,
    /// Part of a batch lies behind the tail's end.
    is_torn: bool,
    /// The last segment's bytes, for their memory.
    buffer: Vec<u8>,
    /// What is read back counts as just written, so that clients find the ring filled when they come back.
    now_ms: u64,
}

impl Recovery<'_> {
    fn segment(&mut self, first: Revision, is_last: bool) -> Result<(), StoreError> {
        if first != self.expected {
            return Err(self.gap(first, self.expected));
        }
        let name = Name::segment(first);
        let mut data = mem::take(&mut self.buffer);
        read_whole(&*self.volume.disk.open(&name)?, &mut data)?;
        let mut segment = Segment {
            first,
            bytes: 0,
            at_ms: 0,
        };
        let end = self.frames(&name, &data, &mut segment)?;
        segment.bytes = end as u64;
        self.segments.push(segment);
        if is_last {
            self.finish(first, &data, end)?;
        }
        self.buffer = data;
        Ok(())
    }

    /// Applies every whole frame; returns where they end.
    fn frames(&mut self, name: &str, data: &[u8], segment: &mut Segment) -> Result<usize, StoreError> {
        let mut offset = 0;
        loop {
            match frame::parse(data, offset, Kind::Log, self.volume.salt) {
                Parsed::Frame { header, payload, end } => {
                    if header.first_revision != self.expected {
                        return Err(self.volume.damaged(name, offset, "the revisions are not in order"));
                    }
                    let (history, now_ms) = (&mut self.history, self.now_ms);
                    let last = replay::apply(
                        &mut self.state,
                        &header,
                        payload,
                        Revision::MAX,
                        &State::default(),
                        &*self.volume.codec,
                        |commit| {
                            history.push(Commit {
                                at_ms: now_ms,
                                ..commit
                            });
                            history.trim(now_ms);
                        },
                    );
                    let last = last.map_err(|error| self.volume.unreadable(name, offset, &error))?;
                    self.expected = last + 1;
                    segment.at_ms = header.at_ms;
                    offset = end;
                }
                Parsed::Blank | Parsed::Torn => return Ok(offset),
                Parsed::Broken(why) => return Err(self.volume.damaged(name, offset, why)),
            }
        }
    }

    /// Finds where the next batch goes; a part of one may lie there.
    fn finish(&mut self, first: Revision, data: &[u8], end: usize) -> Result<(), StoreError> {
        let name = &Name::segment(first);
        if let Some(later) = frame::find(data, end, Kind::Log, self.volume.salt, self.expected) {
            let why = format!("a batch is missing, while a later one at byte {later} is intact");
            return Err(self.volume.damaged(name, end, &why));
        }
        self.tail = Some(Tail {
            first,
            file: self.volume.disk.open(name)?,
            end: end as u64,
            allocated: data.len() as u64,
        });
        self.is_torn = !frame::blank(&data[end..]);
        Ok(())
    }

    /// Cuts off the batch that was being written when the process or the machine went down.
    fn cut_off(&mut self) -> Result<(), StoreError> {
        if let Some(tail) = &mut self.tail
            && self.is_torn
        {
            let file = Name::segment(tail.first);
            tracing::info!(
                file,
                at = tail.end,
                "Truncating the log: its last batch was not completely written"
            );
            tail.file.truncate(tail.end)?;
            tail.file.sync()?;
            tail.allocated = tail.end;
        }
        Ok(())
    }

    /// Takes the state that is left as that of revision `acknowledged`, so that no revision that clients have seen comes
    /// again. Returns the revision that history begins with from now on.
    fn go_on_without(&mut self, acknowledged: Revision, options: &Options) -> Result<Revision, StoreError> {
        let (from, to) = (self.state.revision + 1, acknowledged);
        tracing::warn!(
            from,
            to,
            "Continuing without acknowledged revisions that are missing on disk, as requested"
        );
        self.state.revision = acknowledged;
        self.history = History::new(acknowledged, options.memory_bytes);
        checkpoint::write(self.volume, &self.state)?;
        Ok(acknowledged)
    }

    fn remove_log(&mut self) -> Result<(), StoreError> {
        self.tail = None;
        for segment in self.segments.drain(..) {
            self.volume.disk.remove(&Name::segment(segment.first))?;
        }
        Ok(())
    }

    fn lost(&self, acknowledged: Revision) -> StoreError {
        let last = self.segments.last().map_or(self.expected, |segment| segment.first);
        let path = self.volume.disk.path(&Name::segment(last));
        let found = self.state.revision;
        StoreError::Corrupt(format!(
            "writes up to revision {acknowledged} were acknowledged, but the log ends with revision {found}: {path} or a \
             file after it was truncated, emptied or removed. Nothing was changed. Put the file back or restore the directory \
             from a backup; to go on without the {} missing revisions, start once with --accept-lost-revisions={acknowledged}",
            acknowledged - found
        ))
    }

    fn gap(&self, found: Revision, expected: Revision) -> StoreError {
        let path = self.volume.disk.path(&Name::segment(found));
        StoreError::Corrupt(format!(
            "{path} begins at revision {found}, but the files before it end with {}: a file is missing or damaged. \
             Nothing was changed. Restore the directory from a backup",
            expected - 1
        ))
    }
}
