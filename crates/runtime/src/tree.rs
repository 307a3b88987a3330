//! Removing trees of directories that someone else has made.
//!
//! The standard library goes down one call and one open file for each level. A container can nest directories until
//! that overflows the stack of the whole process, so here what is deep is moved up to the top before it is removed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Removes a directory with everything in it, following no link. What is not there counts as removed.
pub fn remove(path: &Path) -> io::Result<()> {
    let top = match open_dir(CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        // A link, or a file.
        Err(Errno::LOOP | Errno::NOTDIR) => return Ok(rustix::fs::unlink(path)?),
        Err(error) => return Err(error.into()),
    };
    empty(&top)?;
    match rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Directories that were moved to the top and wait to be emptied there.
struct Moved<'a> {
    top: &'a OwnedFd,
    waiting: Vec<u64>,
    next: u64,
}

fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut moved = Moved {
        top,
        waiting: Vec::new(),
        next: 0,
    };
    for entry in Dir::read_from(top)? {
        let entry = entry?;
        if is_real(entry.file_name()) && !unlink(top, entry.file_name(), entry.file_type())? {
            moved.remove(entry.file_name())?;
        }
    }
    while let Some(number) = moved.waiting.pop() {
        moved.remove(&moved_name(number))?;
    }
    Ok(())
}

impl Moved<'_> {
    /// Removes a directory of the top one: what is not empty in it moves up first.
    fn remove(&mut self, name: &CStr) -> io::Result<()> {
        let dir = match open_dir(self.top.as_fd(), name) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            if is_real(entry.file_name()) && !unlink(&dir, entry.file_name(), entry.file_type())? {
                self.move_up(&dir, entry.file_name())?;
            }
        }
        match rustix::fs::unlinkat(self.top, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn move_up(&mut self, dir: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            let (number, flags) = (self.next, RenameFlags::NOREPLACE);
            self.next += 1;
            match rustix::fs::renameat_with(dir, name, self.top, moved_name(number), flags) {
                // The tree has something of this name.
                Err(Errno::EXIST) => {}
                result => {
                    result?;
                    self.waiting.push(number);
                    return Ok(());
                }
            }
        }
    }
}

/// Removes what is not a directory, or is an empty one. Says whether it is gone.
fn unlink(dir: &OwnedFd, name: &CStr, kind: FileType) -> io::Result<bool> {
    if !matches!(kind, FileType::Directory | FileType::Unknown) {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(Errno::NOTDIR) => Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty()).map(|()| true)?),
        Err(error) => Err(error.into()),
    }
}

fn is_real(name: &CStr) -> bool {
    !matches!(name.to_bytes(), b"." | b"..")
}

fn moved_name(number: u64) -> CString {
    CString::new(format!(".removing-{number}")).unwrap_or_default()
}

fn open_dir(dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Nests directories far deeper than any path is long.
    fn nest(top: &Path, levels: usize) {
        let mut dir = open_dir(CWD, top).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&dir, c"d", Mode::from_raw_mode(0o700)).unwrap();
            dir = open_dir(dir.as_fd(), c"d").unwrap();
        }
    }

    #[test]
    fn a_tree_too_deep_for_any_stack_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        nest(&top.join("a"), 5_000);
        nest(&top, 1_000);
        // Names the removal itself would choose do not confuse it.
        fs::create_dir_all(top.join(".removing-0/x/y")).unwrap();
        fs::write(top.join(".removing-1"), "file").unwrap();
        let small_stack = std::thread::Builder::new().stack_size(128 << 10);
        let removed = small_stack.spawn({
            let top = top.clone();
            move || remove(&top)
        });
        removed.unwrap().join().unwrap().unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir_all(outside.join("kept")).unwrap();
        fs::create_dir_all(top.join("a")).unwrap();
        symlink(&outside, top.join("a/out")).unwrap();
        symlink(&outside, top.join("out")).unwrap();
        remove(&top).unwrap();
        symlink(&outside, &top).unwrap();
        remove(&top).unwrap();
        assert!(outside.join("kept").is_dir() && !top.exists());
        remove(&top).unwrap();
    }
}
