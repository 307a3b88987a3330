//! Checkpoints: the whole state at one revision, the ground that the log stands on.

use std::io;

use super::disk::{DiskFile, is_full};
use super::frame::{self, HEADER, Kind};
use super::record::{self, Reader};
use super::reserve;
use super::volume::{Name, Volume};
use crate::state::State;
use crate::{Revision, StoreError};

/// A frame is closed when it has grown to this.
const FRAME_BYTES: usize = 256 << 10;

/// A frame begins with the number of its entries; the last frame has none and tells how many there were in all.
const COUNT: usize = 4;

/// Writes the checkpoint of `state` and makes it durable; on a full disk, into the space that is set aside for it.
pub fn write(volume: &Volume, state: &State) -> io::Result<()> {
    let name = Name::checkpoint(state.revision);
    match volume.replace(&name, |file| write_to(volume, file, state)) {
        Err(error) if is_full(&error) && reserve::is_kept(volume) => volume.replace_with(
            &name,
            |unfinished| reserve::take(volume, unfinished),
            |file| write_to(volume, file, state),
        ),
        written => written,
    }
}

fn write_to(volume: &Volume, file: &dyn DiskFile, state: &State) -> io::Result<()> {
    let mut output = Output {
        volume,
        file,
        revision: state.revision,
        offset: 0,
        buffer: Vec::new(),
        entries: 0,
    };
    output.begin();
    for entry in state.entries.values() {
        record::write_entry(&mut output.buffer, entry, &*volume.codec).map_err(io::Error::other)?;
        output.entries += 1;
        if output.buffer.len() >= FRAME_BYTES {
            output.finish()?;
        }
    }
    if output.entries > 0 {
        output.finish()?;
    }
    let entries = state.entries.len() as u64;
    output.buffer.extend_from_slice(&entries.to_le_bytes());
    output.finish()?;
    // The file may have been longer before.
    file.truncate(output.offset)
}

struct Output<'a> {
    volume: &'a Volume,
    file: &'a dyn DiskFile,
    revision: Revision,
    offset: u64,
    buffer: Vec<u8>,
    entries: u32,
}

impl Output<'_> {
    fn begin(&mut self) {
        frame::begin(&mut self.buffer);
        self.buffer.extend_from_slice(&[0; COUNT]);
        self.entries = 0;
    }

    fn finish(&mut self) -> io::Result<()> {
        self.buffer[HEADER..HEADER + COUNT].copy_from_slice(&self.entries.to_le_bytes());
        frame::seal(&mut self.buffer, Kind::Checkpoint, self.revision, 0, self.volume.salt);
        self.file.write_at(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.begin();
        Ok(())
    }
}

/// Reads the checkpoint of `revision`. Entries that `known` has at the same revision are shared with it.
pub fn read(volume: &Volume, file: &dyn DiskFile, revision: Revision, known: &State) -> Result<State, StoreError> {
    let name = Name::checkpoint(revision);
    let damaged = |offset: u64, why: &str| volume.damaged(&name, offset as usize, why);
    let mut state = State::default();
    let mut body = Vec::new();
    let mut offset = 0;
    loop {
        let length =
            read_frame(volume, file, offset, &mut body).map_err(|why| why.into_error(|why| damaged(offset, why)))?;
        let mut reader = Reader::new(&body[..length]);
        let malformed = |error| volume.unreadable(&name, offset as usize, &error);
        let count = reader.u32().map_err(malformed)?;
        if count == 0 {
            let entries = reader.u64().map_err(malformed)?;
            if entries != state.entries.len() as u64 {
                return Err(damaged(offset, "entries are missing"));
            }
            state.revision = revision;
            return Ok(state);
        }
        for _ in 0..count {
            state.restore(
                reader
                    .entry(&*volume.codec, |key, mod_revision| known.at(key, mod_revision))
                    .map_err(malformed)?,
            );
        }
        offset += (HEADER + body.len()) as u64;
    }
}

enum Unreadable {
    Io(io::Error),
    Damaged(&'static str),
}

impl Unreadable {
    fn into_error(self, damaged: impl FnOnce(&str) -> StoreError) -> StoreError {
        match self {
            Unreadable::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => damaged("the file ends too early"),
            Unreadable::Io(error) => error.into(),
            Unreadable::Damaged(why) => damaged(why),
        }
    }
}

/// Reads what follows a frame's header into `body`; returns the length of the payload in it.
fn read_frame(volume: &Volume, file: &dyn DiskFile, offset: u64, body: &mut Vec<u8>) -> Result<usize, Unreadable> {
    let mut bytes = [0; HEADER];
    file.read_at(&mut bytes, offset).map_err(Unreadable::Io)?;
    let header = frame::header(&bytes, Kind::Checkpoint, volume.salt)
        .ok_or(Unreadable::Damaged("a header does not match its checksum"))?;
    body.clear();
    body.resize(frame::total(header.payload_len) - HEADER, 0);
    file.read_at(body, offset + HEADER as u64).map_err(Unreadable::Io)?;
    header
        .payload(body)
        .ok_or(Unreadable::Damaged("the content does not match its checksum"))?;
    Ok(header.payload_len)
}
