//! Backups: the state at one revision in a single file, whatever engine it came from.
//!
//! A file is a line that names its format, then blocks of a length, a checksum and that many bytes: the first block is
//! the revision, the following ones are entries, an empty one comes last and is followed by the number of entries. A
//! file that breaks off or was changed anywhere is refused as a whole.

use std::io::{self, Read, Write};

use crate::codec::{Codec, Identity};
use crate::embedded::record::{self, Reader};
use crate::state::State;
use crate::{Revision, Snapshot, StoreError};

const FIRST_LINE: &[u8] = b"karve-backup 1\n";
/// A block is closed when it has grown to this.
const BLOCK_BYTES: usize = 256 << 10;
/// No block that [`write`] makes is longer: one entry is far smaller than this.
const MAX_BLOCK_BYTES: usize = 64 << 20;

/// Writes the whole state, with values as `codec` has them on a disk; returns how many entries it has.
pub fn write(snapshot: &dyn Snapshot, codec: &dyn Codec, output: &mut dyn Write) -> io::Result<u64> {
    output.write_all(FIRST_LINE)?;
    write_block(output, &snapshot.revision().to_le_bytes())?;
    let mut entries = 0u64;
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    for entry in snapshot.range("", "") {
        record::write_entry(&mut block, entry, codec).map_err(io::Error::other)?;
        entries += 1;
        if block.len() >= BLOCK_BYTES {
            write_block(output, &block)?;
            block.clear();
        }
    }
    if !block.is_empty() {
        write_block(output, &block)?;
    }
    write_block(output, &[])?;
    write_block(output, &entries.to_le_bytes())?;
    output.flush()?;
    Ok(entries)
}

/// Reads what [`write`] wrote. Values stay as they are in the file: a restored store has them like that on its disk.
pub(crate) fn read(input: &mut dyn Read) -> Result<State, StoreError> {
    let mut line = [0; FIRST_LINE.len()];
    input.read_exact(&mut line).map_err(broken_off)?;
    if line != FIRST_LINE {
        return Err(StoreError::Corrupt(
            "this is not a backup that this version can read".into(),
        ));
    }
    let mut state = State::default();
    let revision: Revision = number(&read_block(input)?)?;
    loop {
        let block = read_block(input)?;
        if block.is_empty() {
            break;
        }
        let mut reader = Reader::new(&block);
        while !reader.is_at_end() {
            state.restore(reader.entry(&Identity, |_, _| None).map_err(|_| changed())?);
        }
    }
    if number(&read_block(input)?)? != state.entries.len() as u64 {
        return Err(StoreError::Corrupt("the backup lacks some of its entries".into()));
    }
    state.revision = revision;
    Ok(state)
}

fn write_block(output: &mut dyn Write, block: &[u8]) -> io::Result<()> {
    output.write_all(&(block.len() as u32).to_le_bytes())?;
    output.write_all(&crc32fast::hash(block).to_le_bytes())?;
    output.write_all(block)
}

fn read_block(input: &mut dyn Read) -> Result<Vec<u8>, StoreError> {
    let mut head = [0; 8];
    input.read_exact(&mut head).map_err(broken_off)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (length, checksum) = (word(0) as usize, word(4));
    if length > MAX_BLOCK_BYTES {
        return Err(changed());
    }
    let mut block = vec![0; length];
    input.read_exact(&mut block).map_err(broken_off)?;
    match crc32fast::hash(&block) == checksum {
        true => Ok(block),
        false => Err(changed()),
    }
}

fn number(block: &[u8]) -> Result<u64, StoreError> {
    block.try_into().map(u64::from_le_bytes).map_err(|_| changed())
}

fn changed() -> StoreError {
    StoreError::Corrupt("the backup does not match its checksums: it was changed or damaged".into())
}

fn broken_off(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => StoreError::Corrupt("the backup breaks off before its end".into()),
        _ => error.into(),
    }
}
