//! What the engine asks of a disk. Small, so that tests can put a faulty one in its place.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags};

use crate::StoreError;

/// One directory of files. A file's content is durable after its `sync`, its name after `sync_names`.
pub trait Disk: Send + Sync {
    fn names(&self) -> io::Result<Vec<String>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// A new, empty file; one that is there already is emptied.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn sync_names(&self) -> io::Result<()>;
    /// The file as a person would name it, for messages.
    fn path(&self, name: &str) -> String;
    /// How much more fits, if that is known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

pub trait DiskFile: Send + Sync {
    fn length(&self) -> io::Result<u64>;
    /// Fills `buffer` completely.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes `data` completely; after an error any part of it may have been written.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Makes the file this long with space that is its own, so that writing into it cannot fail for want of space.
    fn allocate(&self, length: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    /// Lets later reads come from the device rather than from a cache that a failed sync has left behind.
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A directory of the file system, readable by its owner only.
pub(crate) struct Directory {
    path: PathBuf,
    handle: File,
}

impl Directory {
    /// Opens the directory. Where it is missing, it and its parents are created and made durable.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let missing = path.ancestors().take_while(|ancestor| !ancestor.exists());
        let parents: Vec<PathBuf> = missing
            .filter_map(|missing| missing.parent().map(Path::to_owned))
            .collect();
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        for parent in parents {
            File::open(parent)?.sync_all()?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(Directory {
            handle: File::open(&path)?,
            path,
        })
    }
}

impl Disk for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(
            OpenOptions::new().read(true).write(true).open(self.path.join(name))?,
        ))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path.join(name))?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn path(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.handle).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self, FallocateFlags::empty(), 0, length)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(self, 0, None, Advice::DontNeed)?)
    }
}

/// Whether an operation failed because the disk, or what this process may use of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Keeps every other process out of the directory. The kernel lets go of it when this process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(fs::TryLockError::WouldBlock) => Err(StoreError::Unavailable(format!(
                "{} is in use by another process; stop that one first or choose another data directory",
                directory.display()
            ))),
            Err(fs::TryLockError::Error(error)) => Err(error.into()),
        }
    }
}
