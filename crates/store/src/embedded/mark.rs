//! The high-water mark: how far acknowledged writes reached, kept in a file beside the log.
//!
//! A log that was truncated, emptied or removed reads like one that ends earlier. The mark tells the difference. It is
//! written after the log is synced and before anybody is answered, so it is never ahead of what the log holds. It is synced
//! about once a second: a killed process loses none of it, a power cut at most the last second of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::DiskFile;
use super::frame::Salt;
use super::volume::{Volume, read_whole};
use crate::{Revision, StoreError};

const NAME: &str = "acknowledged";
const MAGIC: u32 = 0x6b63_616b;
/// The mark is written to two sectors in turn, so that one that is half written leaves the other.
const SLOT: usize = 512;
const SLOTS: usize = 2;
const RECORD: usize = 16;

pub(crate) struct Mark {
    file: Arc<dyn DiskFile>,
    salt: Salt,
    written: AtomicU64,
    synced: AtomicU64,
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
    let slots = data.chunks(SLOT).take(SLOTS);
    let newest = slots.filter_map(|slot| parse(slot, volume.salt)).max();
    newest.map(Some).ok_or_else(|| {
        StoreError::Corrupt(format!(
            "{} is damaged, so nobody can tell whether acknowledged writes are missing. Nothing was changed. Restore the \
             directory from a backup, or remove that file to open the store as it is",
            volume.disk.path(NAME)
        ))
    })
}

impl Mark {
    /// Goes on with the mark of a store that holds everything up to `revision`.
    pub fn open(volume: &Volume, revision: Revision) -> io::Result<Self> {
        let file = match volume.disk.open(NAME) {
            Ok(file) => file,
            Err(_) => {
                let content = [slot(revision, volume.salt), slot(revision, volume.salt)].concat();
                volume.replace(NAME, |file| file.write_at(&content, 0))?;
                volume.disk.open(NAME)?
            }
        };
        Ok(Mark {
            file,
            salt: volume.salt,
            written: AtomicU64::new(revision),
            synced: AtomicU64::new(revision),
        })
    }

    /// Notes that everything up to `revision` is durable. Called by the log thread only.
    pub fn advance(&self, revision: Revision) -> io::Result<()> {
        let place = (revision as usize % SLOTS) * SLOT;
        self.file.write_at(&record(revision, self.salt), place as u64)?;
        self.written.store(revision, Ordering::Release);
        Ok(())
    }

    /// Makes the mark durable if it has moved. Blocks on the disk.
    pub fn sync(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Acquire);
        if written != self.synced.load(Ordering::Acquire) {
            self.file.sync()?;
            self.synced.fetch_max(written, Ordering::AcqRel);
        }
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
