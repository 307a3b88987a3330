//! Space that is set aside for compaction, so that it can free a disk that is full.
//!
//! Compaction writes a checkpoint before it removes history. On a full disk it has no space for that but this file,
//! which becomes the checkpoint: what was set aside is never given back first, so nobody else can take it.

use std::io;
use std::sync::Arc;

use super::disk::DiskFile;
use super::volume::Volume;
use crate::state::State;

const NAME: &str = "reserve";
/// The reserve is a multiple of this.
const STEP: u64 = 1 << 20;
/// A reserve that is this many times larger than needed is made smaller.
const SLACK: u64 = 4;
/// What an entry of a checkpoint takes beside its key and value, with its share of the frames.
const ENTRY_BYTES: u64 = 48;

/// Sets aside what a checkpoint of `state` takes.
pub(crate) fn keep(volume: &Volume, state: &State) -> io::Result<()> {
    let needed = needed_bytes(state);
    let present = present_bytes(volume);
    if (needed..=needed * SLACK).contains(&present) {
        return Ok(());
    }
    let file = match present {
        0 => volume.disk.create(NAME)?,
        _ => volume.disk.open(NAME)?,
    };
    let set_aside = match present > needed {
        true => file.truncate(needed),
        false => file.allocate(needed),
    };
    if set_aside.is_err() && present == 0 {
        // Part of the space would be of no use.
        let _ = volume.disk.remove(NAME);
    }
    set_aside
}

/// Hands out the reserve as the file `name`.
pub(crate) fn take(volume: &Volume, name: &str) -> io::Result<Arc<dyn DiskFile>> {
    volume.disk.rename(NAME, name)?;
    volume.disk.open(name)
}

pub(crate) fn is_kept(volume: &Volume) -> bool {
    present_bytes(volume) > 0
}

fn present_bytes(volume: &Volume) -> u64 {
    volume.disk.open(NAME).and_then(|file| file.length()).unwrap_or(0)
}

fn needed_bytes(state: &State) -> u64 {
    let entries = state.entries.len() as u64;
    (state.bytes + entries * ENTRY_BYTES + 1).next_multiple_of(STEP)
}
