//! Removing what a pod left: no link is followed, no mount is entered, and no tree is too deep.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, IFlags, RawDir, RenameFlags, SeekFrom, renameat, renameat_with, seek, unlinkat};
use rustix::io::Errno;

use super::{Dir, NAMES_BYTES};

/// Directories that are open at a time. A tree can be deeper than descriptors and the stack allow; what lies deeper is
/// moved up first.
const OPEN_DEPTH: usize = 32;
/// How often a directory is read to its end before it is given up: somebody fills it faster than it is emptied.
const MAX_PASSES: usize = 64;
/// Where what lay deep is moved to. Names of the kind do not collide with what the kubelet makes.
const MOVED: &str = "..removed.";

/// A removal of one name from a directory.
struct Removal<'a> {
    top: &'a Dir,
    moved: u32,
    pending: Vec<OsString>,
}

pub fn remove(top: &Dir, name: &OsStr) -> io::Result<()> {
    let mut removal = Removal {
        top,
        moved: 0,
        pending: vec![name.to_owned()],
    };
    while let Some(name) = removal.pending.pop() {
        removal.entry(top, &name, 0)?;
    }
    Ok(())
}

impl Removal<'_> {
    fn entry(&mut self, parent: &Dir, name: &OsStr, depth: usize) -> io::Result<()> {
        match unlink(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(named(error, name)),
        }
        match unlink(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            // It was a directory a moment ago.
            Err(Errno::NOTDIR) => return unlink(parent, name, AtFlags::empty()).map_err(|error| named(error, name)),
            Err(error) => return Err(named(error, name)),
        }
        if depth == OPEN_DEPTH {
            return self.move_up(parent, name).map_err(|error| named(error, name));
        }
        let directory = parent.child(name).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::XDEV) => {
                io::Error::new(io::ErrorKind::ResourceBusy, format!("something is mounted at {name:?}"))
            }
            _ => error,
        })?;
        self.empty(&directory, depth + 1)?;
        match unlink(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(named(error, name)),
        }
    }

    fn empty(&mut self, directory: &Dir, depth: usize) -> io::Result<()> {
        for _ in 0..MAX_PASSES {
            let mut room = Vec::with_capacity(NAMES_BYTES);
            let mut listing = RawDir::new(directory, room.spare_capacity_mut());
            let mut was_empty = true;
            while let Some(entry) = listing.next() {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name != "." && name != ".." {
                    was_empty = false;
                    self.entry(directory, name, depth)?;
                }
            }
            if was_empty {
                return Ok(());
            }
            // File systems may pass over entries while others are removed.
            seek(directory, SeekFrom::Start(0))?;
        }
        Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty))
    }

    fn move_up(&mut self, parent: &Dir, name: &OsStr) -> Result<(), Errno> {
        for _ in 0..MAX_PASSES {
            self.moved = self.moved.wrapping_add(1);
            let up = OsString::from(format!("{MOVED}{}", self.moved));
            let moved = match renameat_with(parent, name, self.top, &up, RenameFlags::NOREPLACE) {
                Err(Errno::INVAL | Errno::NOSYS) => renameat(parent, name, self.top, &up),
                other => other,
            };
            match moved {
                Ok(()) => {
                    self.pending.push(up);
                    return Ok(());
                }
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR) => {}
                Err(Errno::PERM) if thaw(parent, name) => {}
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::BUSY)
    }
}

/// Removes one entry; one that was made immutable is made mutable first.
fn unlink(parent: &Dir, name: &OsStr, flags: AtFlags) -> Result<(), Errno> {
    match unlinkat(parent, name, flags) {
        Err(Errno::PERM) if thaw(parent, name) => unlinkat(parent, name, flags),
        other => other,
    }
}

/// Takes away the attributes that keep an entry or its directory from being changed. False if there were none.
fn thaw(parent: &Dir, name: &OsStr) -> bool {
    let mut thawed = clear(parent);
    if let Ok(directory) = parent.child(name) {
        thawed |= clear(&directory);
    } else if let Ok(file) = parent.open_file(Path::new(name)) {
        thawed |= clear(&file);
    }
    thawed
}

fn clear(file: impl std::os::fd::AsFd) -> bool {
    let frozen = IFlags::IMMUTABLE | IFlags::APPEND;
    match rustix::fs::ioctl_getflags(&file) {
        Ok(flags) if flags.intersects(frozen) => rustix::fs::ioctl_setflags(&file, flags - frozen).is_ok(),
        _ => false,
    }
}

fn named(error: Errno, name: &OsStr) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot remove {name:?}: {error}"))
}
