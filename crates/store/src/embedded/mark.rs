//! The high-water mark: how far acknowledged writes reached, kept in a file beside the log.
//!
//! A log that was truncated, emptied or removed reads like one that ends earlier. The mark tells the difference. It is
//! written after the log is synced and before anybody is answered, so it is never ahead of what the log holds. It is synced
//! about once a second: a killed process loses none of it, a power cut at most the last second of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::disk::DiskFile;
use super::frame::Salt;
use super::volume::{Volume, read_whole};
use crate::{Revision, StoreError};

const NAME: &str = "acknowledged";
const MAGIC: u32 = 0x6b63_616b;
/// The mark is kept in three sectors: one that is known to be on the disk, which nobody writes to, one that is being synced,
/// and one that is written to meanwhile. A power cut can tear what was not synced, and always leaves the first.
const SLOT: usize = 512;
const SLOTS: usize = 3;
const RECORD: usize = 16;

pub(crate) struct Mark {
    file: Arc<dyn DiskFile>,
    salt: Salt,
    written: AtomicU64,
    synced: AtomicU64,
    /// Held for as long as a write to the slot it names takes.
    slots: Mutex<Slots>,
    /// Held while the file is synced, so that only one slot is being synced at a time.
    syncing: Mutex<()>,
}

struct Slots {
    durable: usize,
    working: usize,
}

impl Slots {
    fn beside(durable: usize) -> Self {
        Slots {
            durable,
            working: (durable + 1) % SLOTS,
        }
    }

    /// Has later writes go to the third slot, and returns the one that may be synced now.
    fn switch(&mut self) -> usize {
        let full = self.working;
        self.working = (0..SLOTS)
            .find(|slot| *slot != full && *slot != self.durable)
            .unwrap_or(full);
        full
    }
}

/// The revision up to which writes were acknowledged; `None` for a store of a version that kept no mark.
pub(crate) fn read(volume: &Volume) -> Result<Option<Revision>, StoreError> {
    let file = match volume.disk.open(NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut data = Vec::new();
    read_whole(&*file, &mut data)?;
    newest(&data, volume.salt).map(|(revision, _)| Some(revision)).ok_or_else(|| {
        StoreError::Corrupt(format!(
            "{} is damaged, so nobody can tell whether acknowledged writes are missing. Nothing was changed. Restore the \
             directory from a backup, or remove that file to open the store as it is",
            volume.disk.path(NAME)
        ))
    })
}

/// The highest revision that a slot holds, and which slot it is.
fn newest(data: &[u8], salt: Salt) -> Option<(Revision, usize)> {
    let slots = data.chunks(SLOT).take(SLOTS).enumerate();
    slots.filter_map(|(at, slot)| Some((parse(slot, salt)?, at))).max()
}

impl Mark {
    /// Goes on with the mark of a store that holds everything up to `revision`.
    pub fn open(volume: &Volume, revision: Revision) -> io::Result<Self> {
        let (file, durable) = match volume.disk.open(NAME) {
            Ok(file) => {
                let mut data = Vec::new();
                read_whole(&*file, &mut data)?;
                // A killed process leaves what was not synced; from here on it is relied upon.
                file.sync()?;
                let durable = newest(&data, volume.salt).map_or(0, |(_, slot)| slot);
                (file, durable)
            }
            Err(_) => {
                let content = slot(revision, volume.salt).repeat(SLOTS);
                volume.replace(NAME, |file| file.write_at(&content, 0))?;
                (volume.disk.open(NAME)?, 0)
            }
        };
        Ok(Mark {
            file,
            salt: volume.salt,
            written: AtomicU64::new(revision),
            synced: AtomicU64::new(revision),
            slots: Mutex::new(Slots::beside(durable)),
            syncing: Mutex::new(()),
        })
    }

    /// Notes that everything up to `revision` is durable. Called by the log thread only.
    pub fn advance(&self, revision: Revision) -> io::Result<()> {
        let slots = self.slots.lock();
        let place = slots.working * SLOT;
        self.file.write_at(&record(revision, self.salt), place as u64)?;
        self.written.store(revision, Ordering::Release);
        Ok(())
    }

    /// Makes the mark durable if it has moved. Blocks on the disk.
    pub fn sync(&self) -> io::Result<()> {
        let _only_one = self.syncing.lock();
        let (written, slot) = {
            let mut slots = self.slots.lock();
            let written = self.written.load(Ordering::Acquire);
            if written == self.synced.load(Ordering::Acquire) {
                return Ok(());
            }
            (written, slots.switch())
        };
        self.file.sync()?;
        self.slots.lock().durable = slot;
        self.synced.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    pub fn needs_sync(&self) -> bool {
        self.written.load(Ordering::Acquire) != self.synced.load(Ordering::Acquire)
    }
}

fn slot(revision: Revision, salt: Salt) -> Vec<u8> {
    let mut slot = record(revision, salt).to_vec();
    slot.resize(SLOT, 0);
    slot
}

fn record(revision: Revision, salt: Salt) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..4].copy_from_slice(&MAGIC.to_le_bytes());
    record[4..12].copy_from_slice(&revision.to_le_bytes());
    let check = checksum(&record[..12], salt);
    record[12..].copy_from_slice(&check.to_le_bytes());
    record
}

fn parse(slot: &[u8], salt: Salt) -> Option<Revision> {
    let record = slot.first_chunk::<RECORD>()?;
    let valid = record[..4] == MAGIC.to_le_bytes() && record[12..] == checksum(&record[..12], salt).to_le_bytes();
    let revision = record[4..12].try_into().ok()?;
    valid.then(|| u64::from_le_bytes(revision))
}

fn checksum(bytes: &[u8], salt: Salt) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt.0);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_durable_is_never_written_to_before_something_newer_is() {
        let mut slots = Slots::beside(2);
        for round in 0..20 {
            let full = slots.switch();
            assert_ne!(full, slots.durable, "round {round}");
            assert_ne!(slots.working, slots.durable, "round {round}");
            assert_ne!(slots.working, full, "round {round}");
            // Every third sync fails, and what it should have made durable may be torn.
            if round % 3 != 0 {
                slots.durable = full;
                assert_ne!(slots.working, slots.durable, "round {round}");
            }
        }
    }

    #[test]
    fn a_mark_with_any_flipped_bit_is_no_mark() {
        let whole = slot(77, Salt(3));
        assert_eq!(parse(&whole, Salt(3)), Some(77));
        assert_eq!(parse(&whole, Salt(4)), None, "the mark of another store");
        for bit in 0..RECORD * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&flipped, Salt(3)), None, "bit {bit}");
        }
        assert_eq!(parse(&[], Salt(3)), None);
    }
}
