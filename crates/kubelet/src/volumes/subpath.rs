//! Subpaths of volumes, resolved without ever leaving the volume.
//!
//! A container may write links into its volume, and change them while we look. So a subpath is opened beneath the
//! volume's root by the kernel, links and all, and what was opened is bound to a path of ours; the container is given
//! that path. The file that is bound to is only ever made, never written: once something is bound to it, it is the
//! volume's own file.

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2};
use rustix::io::Errno;

use super::{PARENT_MODE, mounts};
use crate::beneath::{self, Dir};

/// How often a subpath is resolved again because somebody changed it meanwhile.
const MAX_ATTEMPTS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum SubpathError {
    #[error("subPath {0:?} must be a relative path and must not contain '..'")]
    Invalid(String),
    #[error("failed to open the volume {path}: {source}")]
    Volume { path: PathBuf, source: io::Error },
    #[error("failed to open subPath {subpath:?} of {volume}: {source}")]
    Open {
        subpath: String,
        volume: PathBuf,
        source: io::Error,
    },
    #[error("failed to create directories for subPath {subpath:?} of {volume}: {source}")]
    Make {
        subpath: String,
        volume: PathBuf,
        source: io::Error,
    },
    #[error("subPath {0:?} does not exist, or it was changed while it was opened")]
    Unsteady(String),
    #[error("failed to bind mount to {path}: {source}")]
    Bind { path: PathBuf, source: io::Error },
}

/// Binds `subpath` of `volume` to `target`, which is below `root`. What does not exist is made as a directory. What is
/// bound there already stays if it is the same file.
pub fn bind(root: &Path, volume: &Path, subpath: &str, target: &Path) -> Result<(), SubpathError> {
    let source = open_in_volume(volume, subpath)?;
    bind_opened(root, &source, target).map_err(|error| SubpathError::Bind {
        path: target.to_owned(),
        source: error,
    })
}

fn bind_opened(root: &Path, source: &OwnedFd, target: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let parent = beneath::make_dir(root, parent, PARENT_MODE)?;
    let wanted = fstat(source)?;
    while let Ok(found) = parent.find(Path::new(name)) {
        if !beneath::is_mount_root(&found)? {
            break;
        }
        let bound = fstat(&found)?;
        if (bound.st_dev, bound.st_ino) == (wanted.st_dev, wanted.st_ino) {
            return Ok(());
        }
        // The path leads to another file by now, such as the next version of a ConfigMap's.
        mounts::unmount(found)?;
    }
    let place = placeholder(&parent, name, beneath::is_directory(&wanted))?;
    mounts::bind(source, place)
}

/// What is bound to: empty, and of the kind of what is bound.
fn placeholder(parent: &Dir, name: &OsStr, is_directory: bool) -> io::Result<OwnedFd> {
    if let Ok(found) = parent.find(Path::new(name)) {
        if beneath::is_directory(&fstat(&found)?) == is_directory {
            return Ok(found);
        }
        parent.remove(name)?;
    }
    match is_directory {
        true => _ = parent.make_child(name, PARENT_MODE)?,
        false => _ = parent.create_file(name)?,
    }
    parent.find(Path::new(name))
}

/// Opens a path beneath a volume's root and makes missing directories. Links are followed as long as they stay inside.
pub fn open_in_volume(volume: &Path, subpath: &str) -> Result<OwnedFd, SubpathError> {
    let relative = Path::new(subpath);
    let mut parts = relative.components().filter(|part| *part != Component::CurDir);
    if relative.is_absolute() || parts.any(|part| !matches!(part, Component::Normal(_))) {
        return Err(SubpathError::Invalid(subpath.to_owned()));
    }
    let root = Dir::open(volume).map_err(|source| SubpathError::Volume {
        path: volume.to_owned(),
        source,
    })?;
    for _ in 0..MAX_ATTEMPTS {
        match resolve(&root, relative) {
            Ok(opened) => return Ok(opened),
            Err(Errno::NOENT) => {}
            // The kernel could not tell whether a rename somewhere led outside, and asks to try again.
            Err(Errno::AGAIN) => continue,
            Err(error) => {
                return Err(SubpathError::Open {
                    subpath: subpath.to_owned(),
                    volume: volume.to_owned(),
                    source: error.into(),
                });
            }
        }
        make_next(&root, relative).map_err(|error| SubpathError::Make {
            subpath: subpath.to_owned(),
            volume: volume.to_owned(),
            source: error,
        })?;
    }
    Err(SubpathError::Unsteady(subpath.to_owned()))
}

fn resolve(root: &Dir, path: &Path) -> Result<OwnedFd, Errno> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)
}

/// Makes the directories that are missing. They get the mode of the volume, so that whoever may write to the volume may
/// write to them.
fn make_next(root: &Dir, path: &Path) -> io::Result<()> {
    let mode = root.stat()?.st_mode & 0o7777;
    let mut reached = PathBuf::from(".");
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
        let parent = match resolve(root, &reached) {
            Ok(parent) => parent,
            // Somebody removed it again.
            Err(Errno::NOENT | Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        reached.push(name);
        match mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => set_mode(parent.as_fd(), name, mode)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Somebody may have put something else in the place of the directory that was just made. Nothing is changed but an
/// empty directory that only root could use so far.
fn set_mode(parent: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
    let Ok(made) = Dir::from_parent(parent, name) else {
        return Ok(());
    };
    let stat = made.stat()?;
    match stat.st_uid == 0 && stat.st_mode & 0o777 == 0o700 && made.entries()?.is_empty() {
        true => made.set_mode(mode),
        false => Ok(()),
    }
}
