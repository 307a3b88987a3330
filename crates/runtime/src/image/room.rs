//! How much room there is for images on their disk. Some of it is never used: nothing on a node works without any.

use std::io;
use std::os::fd::AsFd;

use super::limits::RESERVED_BYTES;

/// What may still be written to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub inodes: u64,
}

impl Room {
    /// The room on the file system that a descriptor is on.
    pub fn on(fd: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstatvfs(fd)?;
        let reserved = RESERVED_BYTES.min(stat.f_blocks.saturating_mul(stat.f_frsize) / 20);
        let available = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(Self {
            bytes: available.saturating_sub(reserved),
            // Some file systems make inodes as they are needed and count none.
            inodes: match stat.f_files {
                0 => u64::MAX,
                total => stat.f_favail.saturating_sub(total / 20),
            },
        })
    }

    /// Refuses what would not fit.
    pub fn check(self, bytes: u64) -> io::Result<()> {
        if bytes <= self.bytes && self.inodes > 0 {
            return Ok(());
        }
        let message = format!(
            "no space left for images: {bytes} bytes are needed, and {} bytes and {} inodes may be used of their disk; \
             remove images or make the disk larger",
            self.bytes, self.inodes
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_written() {
        let room = Room { bytes: 10, inodes: 1 };
        room.check(10).unwrap();
        assert_eq!(room.check(11).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let full = Room { inodes: 0, ..room };
        assert_eq!(full.check(0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn the_reserve_is_not_given_away() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::File::open(dir.path()).unwrap();
        let stat = rustix::fs::fstatvfs(&dir).unwrap();
        let room = Room::on(&dir).unwrap();
        assert!(room.bytes < stat.f_bavail * stat.f_frsize);
    }
}
