//! Looking up and making paths inside a root directory that is not trusted.
//!
//! Nothing here follows a symbolic link out of the root, whatever an image holds: the kernel is told that the root is
//! the top of the world.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// What a path is made as where there is nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Directory,
    File,
}

impl Target {
    /// A mount and what it is mounted on must both be directories, or both not.
    pub fn like(fd: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(fd)?;
        let directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        Ok(if directory { Self::Directory } else { Self::File })
    }
}

/// Opens a path inside a root, where every symbolic link and `..` stays inside too.
pub fn open(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    open_with(root, path, OFlags::PATH)
}

/// Opens a directory inside a root, for more than looking things up in it.
pub fn open_directory(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    open_with(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a file to be read, in a root that is mounted so that no device in it can be opened.
pub fn open_file(root: BorrowedFd<'_>, path: &Path) -> io::Result<std::fs::File> {
    // Opening must not wait for the writer of a pipe that an image may have put there.
    Ok(open_with(root, path, OFlags::RDONLY | OFlags::NONBLOCK)?.into())
}

/// Opens a directory of a root that no link may stand for, making it if there is none.
pub fn ensure_plain_directory(root: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(root, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    open_plain(root, Path::new(name), OFlags::PATH | OFlags::DIRECTORY)
}

/// Opens a path that leads inside a root without any link.
pub fn open_plain(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    resolve(root, path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS)
}

/// Reads a file inside a root, of which no more than `limit` bytes are expected.
pub fn read(root: BorrowedFd<'_>, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Opening a device can do things, so nothing is opened before it is known to be a file.
    let place = open(root, path)?;
    let stat = rustix::fs::fstat(&place)?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = std::fs::File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

fn open_with(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    resolve(root, path, flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

fn resolve(root: BorrowedFd<'_>, path: &Path, flags: OFlags, how: ResolveFlags) -> io::Result<OwnedFd> {
    // The root itself has no name.
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    loop {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            // The kernel saw a rename beside the lookup and could not prove it safe.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Opens a path inside a root, making what is missing of it.
pub fn ensure(root: BorrowedFd<'_>, path: &Path, kind: Target) -> io::Result<OwnedFd> {
    let missing = match open(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => error,
        result => return result,
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(missing);
    };
    let parent = ensure(root, parent, Target::Directory)?;
    match kind {
        Target::Directory => rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?,
        Target::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)?;
        }
    }
    open(parent.as_fd(), Path::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn root() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let fd = fs::File::open(dir.path()).unwrap().into();
        (dir, fd)
    }

    #[test]
    fn missing_targets_are_made_as_what_is_mounted_on_them() {
        let (dir, fd) = root();
        ensure(fd.as_fd(), Path::new("/a/b/file"), Target::File).unwrap();
        ensure(fd.as_fd(), Path::new("/a/c"), Target::Directory).unwrap();
        assert!(dir.path().join("a/b/file").is_file());
        assert!(dir.path().join("a/c").is_dir());
    }

    #[test]
    fn only_files_are_read_and_devices_are_not_even_opened() {
        use rustix::fs::FileType;
        let (dir, fd) = root();
        fs::write(dir.path().join("file"), "text").unwrap();
        assert_eq!(read(fd.as_fd(), Path::new("file"), 4).unwrap(), b"text");
        assert!(read(fd.as_fd(), Path::new("file"), 3).is_err());
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(&fd, "pipe", FileType::Fifo, mode, 0).unwrap();
        if rustix::process::geteuid().is_root() {
            // The number of no driver: opening it is another error than looking at it.
            let device = rustix::fs::makedev(511, 255);
            rustix::fs::mknodat(&fd, "device", FileType::CharacterDevice, mode, device).unwrap();
        }
        for name in ["pipe", "device"].iter().filter(|name| dir.path().join(name).exists()) {
            let error = read(fd.as_fd(), Path::new(name), 4).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{name}");
        }
    }

    #[test]
    fn links_in_an_image_lead_nowhere_else() {
        let (dir, fd) = root();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("absolute")).unwrap();
        symlink("../../../..", dir.path().join("upward")).unwrap();
        // An absolute link is read inside the root, where its target does not exist: nothing is made, in either.
        assert!(ensure(fd.as_fd(), Path::new("absolute/x"), Target::File).is_err());
        ensure(fd.as_fd(), Path::new("upward/y"), Target::File).unwrap();
        assert!(dir.path().join("y").is_file());
        assert!(fs::read_dir(outside.path()).unwrap().next().is_none());
    }
}
