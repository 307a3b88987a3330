//! Files in directories that pods may write to, reached by descriptor.
//!
//! A pod can put anything into a volume or a log directory: links to files of the host, FIFOs that block their reader,
//! device nodes that do something when they are opened, trees without end. It can also change it while the kubelet
//! looks. So below a directory that is held open, nothing here follows a link or crosses a mount, only regular files are
//! opened, and what was looked at is what is then used.

mod measure;
mod remove;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawDir, ResolveFlags, Stat, StatxAttributes, StatxFlags, Uid, fchmod, fchown,
    fstat, mkdirat, openat, openat2, statx, unlinkat,
};
use rustix::io::Errno;

pub use measure::{Enough, measure};

/// Room for the names of a directory that are read at once.
const NAMES_BYTES: usize = 8192;
const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Resolution within one directory: no links, no way out of it.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// The same, and nothing that is mounted in it.
const SAME_MOUNT: ResolveFlags = INSIDE.union(ResolveFlags::NO_XDEV);

/// A directory that is held open.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory by a path that pods have no part in. Links in it are followed: an administrator may have put
    /// the kubelet's files elsewhere.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a directory that is open as a place only.
    pub fn reopen(place: BorrowedFd<'_>) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir(openat(place, ".", flags, Mode::empty())?))
    }

    /// Opens a directory below this one. Mounts on the way are entered, for volumes can be mounts; links are not.
    pub fn below(&self, path: &Path) -> io::Result<Dir> {
        Ok(Dir(openat2(self, path, OPEN_DIRECTORY, Mode::empty(), INSIDE)?))
    }

    /// Opens a directory below this one and makes what is missing of it.
    pub fn make_below(&self, path: &Path, mode: u32) -> io::Result<Dir> {
        let mut reached = match self.below(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.below(Path::new("."))?,
            other => return other,
        };
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            };
            reached = match mkdirat(&reached, name, Mode::from_raw_mode(0o700)) {
                Ok(()) => {
                    let made = reached.child(name)?;
                    made.set_mode(mode)?;
                    made
                }
                Err(Errno::EXIST) => reached.below(Path::new(name))?,
                Err(error) => return Err(error.into()),
            };
        }
        Ok(reached)
    }

    /// Opens a directory of this one that is no mount.
    pub fn child(&self, name: &OsStr) -> io::Result<Dir> {
        Dir::from_parent(self.as_fd(), name)
    }

    /// Makes a directory that must not be there yet.
    pub fn make_child(&self, name: &OsStr, mode: u32) -> io::Result<Dir> {
        mkdirat(self, name, Mode::from_raw_mode(0o700))?;
        let made = self.child(name)?;
        made.set_mode(mode)?;
        Ok(made)
    }

    /// Makes a file that must not be there yet. Nobody but root can open it until it is given another mode.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(self, name, flags, Mode::from_raw_mode(0o600))?))
    }

    /// Opens whatever is at a path below this directory, mounted or not, without reading it.
    pub fn find(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(self, path, flags, Mode::empty(), INSIDE)?)
    }

    /// Opens a regular file in this directory or below it. Anything else is refused without being opened.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        reopen(openat2(self, path, flags, Mode::empty(), SAME_MOUNT)?)
    }

    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(self, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    pub fn stat(&self) -> io::Result<Stat> {
        Ok(fstat(self)?)
    }

    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(self, Mode::from_raw_mode(mode))?)
    }

    pub fn set_group(&self, group: u32) -> io::Result<()> {
        Ok(fchown(self, None, Some(Gid::from_raw(group)))?)
    }

    /// What is in the directory, and whether each is a directory as far as the file system says without being asked twice.
    pub fn entries(&self) -> io::Result<Vec<(OsString, FileType)>> {
        // A descriptor of its own, for the position in a directory belongs to the descriptor.
        let listed = self.below(Path::new("."))?;
        let mut room = Vec::with_capacity(NAMES_BYTES);
        let mut listing = RawDir::new(&listed, room.spare_capacity_mut());
        let mut found = Vec::new();
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                found.push((name.to_owned(), entry.file_type()));
            }
        }
        Ok(found)
    }

    /// Removes whatever has this name, with everything in it. That there is nothing is fine; that something is mounted
    /// there is an error, and then what is mounted stays whole.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        remove::remove(self, name)
    }

    /// Like [`child`](Dir::child), of a directory that may be open only as a place.
    pub fn from_parent(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Dir> {
        Ok(Dir(openat2(parent, name, OPEN_DIRECTORY, Mode::empty(), SAME_MOUNT)?))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> OwnedFd {
        dir.0
    }
}

/// Opens the directory `path`, which is `root` or below it. Links are followed to `root`, and no further.
pub fn open_dir(root: &Path, path: &Path) -> io::Result<Dir> {
    Dir::open(root)?.below(&relative(root, path)?)
}

/// Like [`open_dir`], and makes what is missing below `root`.
pub fn make_dir(root: &Path, path: &Path, mode: u32) -> io::Result<Dir> {
    let root_dir = Dir::open(root)?;
    match relative(root, path)? {
        path if path == Path::new(".") => Ok(root_dir),
        path => root_dir.make_below(&path, mode),
    }
}

/// Opens a regular file of which pods have no part in the directory.
pub fn open_file(path: &Path) -> io::Result<File> {
    reopen(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens the directory of a container's log. Pods that were given the machine's logs can change what is below the directory
/// of all logs, which is three levels above each of them.
pub fn open_log_dir(log: &Path) -> io::Result<Dir> {
    let above = log.ancestors().nth(3).filter(|above| !above.as_os_str().is_empty());
    let (Some(above), Some(parent)) = (above, log.parent()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    open_dir(above, parent)
}

/// Opens a container's log.
pub fn open_log(log: &Path) -> io::Result<File> {
    open_log_dir(log)?.open_file(Path::new(log.file_name().unwrap_or_default()))
}

/// Writes a file below `root` that replaces what is there.
pub fn write_file(root: &Path, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let parent = make_dir(root, parent, 0o750)?;
    parent.remove(name)?;
    let mut file = parent.create_file(name)?;
    io::Write::write_all(&mut file, content)?;
    set_owner_and_mode(&file, None, None, mode)
}

/// Removes `path`, which is below `root`, with everything in it. That there is nothing is fine.
pub fn remove_below(root: &Path, path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    match open_dir(root, parent) {
        Ok(parent) => parent.remove(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the directory `path`, which is below `root`, if there is nothing in it. That there is none is fine.
pub fn remove_empty_dir(root: &Path, path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let removed = open_dir(root, parent).and_then(|parent| Ok(unlinkat(&parent, name, AtFlags::REMOVEDIR)?));
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Sets what a file is to have when it is complete. The owner comes first, for a new owner loses bits of the mode.
pub fn set_owner_and_mode(file: &File, uid: Option<u32>, gid: Option<u32>, mode: u32) -> io::Result<()> {
    if uid.is_some() || gid.is_some() {
        fchown(file, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
    }
    Ok(fchmod(file, Mode::from_raw_mode(mode))?)
}

/// Which mount a descriptor is on. Two places with different ones are different mounts, also of one file system.
pub fn mount_id(file: impl AsFd) -> io::Result<u64> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    match StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
        true => Ok(found.stx_mnt_id),
        false => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Whether a mount begins exactly at what the descriptor is open on.
pub fn is_mount_root(file: impl AsFd) -> io::Result<bool> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    match found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        true => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        false => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// A path that leads to exactly what the descriptor is open on, for as long as it is open; for system calls that take no
/// descriptor.
pub fn path_of(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/thread-self/fd/{}", file.as_raw_fd()))
}

pub fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// What was found is looked at before it is opened: opening a FIFO waits and opening a device may do something.
fn reopen(found: OwnedFd) -> io::Result<File> {
    if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path_of(found.as_fd()))
}

/// `path` as seen from `root`; `.` for the root itself.
fn relative(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let outside = |_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is outside of {}", path.display(), root.display()),
        )
    };
    let inner = path.strip_prefix(root).map_err(outside)?;
    Ok(match inner.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => inner.to_owned(),
    })
}
