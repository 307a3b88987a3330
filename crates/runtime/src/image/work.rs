//! Directories for what is being fetched or unpacked. They go when they are dropped, and a runtime that starts removes
//! those of one that was killed.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

use crate::tree;

/// All of them, beside the images.
pub const NAME: &str = "work";

pub struct WorkDir {
    path: PathBuf,
    fd: OwnedFd,
}

impl WorkDir {
    /// Makes a new one in the directory of a store.
    pub fn new(store: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = store.join(NAME).join(format!("{}-{number}", std::process::id()));
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let fd = open_dir(rustix::fs::CWD, &path)?;
        Ok(Self { path, fd })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file in it.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Makes a directory in it.
    pub fn make(&self, name: &str) -> io::Result<OwnedFd> {
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755))?;
        Ok(open_dir(self.fd.as_fd(), Path::new(name))?)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = tree::remove(&self.path) {
            tracing::warn!(dir = %self.path.display(), %error, "Failed to remove what is left of an image pull or import");
        }
    }
}

fn open_dir(dir: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, path, flags, Mode::empty())
}
