//! Files of the kernel's own `/proc`, never of something that was mounted or linked in its place.
//!
//! A privileged process that writes to a path below `/proc` does what the file there means. Whoever can put another
//! file at that path turns the write into one of their choosing (CVE-2019-16884, CVE-2025-52881). So every such file is
//! opened here: from a procfs that was checked to be one, without leaving it on the way.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

const PROC_SUPER_MAGIC: u64 = 0x9fa0;
/// The inode of a procfs's root directory, which no other directory of it has.
const PROC_ROOT_INODE: u64 = 1;

/// Writes a value to a file below `/proc`, given relative to it.
pub fn write(path: &str, value: &str) -> io::Result<()> {
    Procfs::open()?.write(path, value)
}

/// A procfs that was opened while this process could see it, for use when it no longer does.
pub struct Procfs(OwnedFd);

impl Procfs {
    pub fn open() -> io::Result<Self> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", directory, Mode::empty())?;
        match is_root(&proc)? {
            true => Ok(Self(proc)),
            false => Err(io::Error::other("/proc is not the kernel's procfs")),
        }
    }

    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        File::from(self.open_file(path, OFlags::WRONLY)?).write_all(value.as_bytes())
    }

    fn open_file(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        // The only links left are procfs's own, such as `self`.
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat2(
            &self.0,
            Path::new(path),
            flags,
            Mode::empty(),
            stay,
        )?)
    }
}

/// Whether a descriptor refers to something on a procfs.
pub fn holds(fd: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(fd)?.f_type as u64 == PROC_SUPER_MAGIC)
}

/// Whether a descriptor refers to the root of a procfs.
pub fn is_root(fd: impl AsFd) -> io::Result<bool> {
    Ok(holds(&fd)? && rustix::fs::fstat(&fd)?.st_ino == PROC_ROOT_INODE)
}

#[cfg(test)]
mod tests;
