//! How much there is in a volume.

use std::path::Path;

use rustix::fs::{StatVfs, fstatvfs};

use super::MountedVolume;
use crate::beneath::{self, Dir, Enough};

/// Entries of one volume that are counted; nobody waits for more.
const MAX_INODES: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    pub available_bytes: u64,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub inodes_free: u64,
    pub inodes: u64,
    pub inodes_used: u64,
}

/// Of a volume that shares its file system with others: what is used is counted file by file.
pub fn of_directory(volume: &MountedVolume) -> Option<VolumeStats> {
    let directory = Dir::open(volume.path()?).ok()?;
    let around = fstatvfs(&directory).ok()?;
    let enough = Enough {
        bytes: u64::MAX,
        inodes: MAX_INODES,
    };
    let size = beneath::measure(directory, enough).ok()?;
    Some(VolumeStats {
        used_bytes: size.bytes,
        inodes_used: size.inodes,
        ..from_statvfs(&around)
    })
}

/// Of a volume that is told by the file system it is on.
pub fn of_file_system(path: &Path) -> Option<VolumeStats> {
    let directory = Dir::open(path).ok()?;
    fstatvfs(&directory).ok().map(|found| from_statvfs(&found))
}

fn from_statvfs(found: &StatVfs) -> VolumeStats {
    VolumeStats {
        available_bytes: found.f_bavail * found.f_frsize,
        capacity_bytes: found.f_blocks * found.f_frsize,
        used_bytes: found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize,
        inodes_free: found.f_ffree,
        inodes: found.f_files,
        inodes_used: found.f_files.saturating_sub(found.f_ffree),
    }
}
