//! How much there is in a directory: no link is followed, no mount is entered, and nothing is too deep to be found.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;

use rustix::fs::{AtFlags, Mode, openat, statat};

use super::{Dir, OPEN_DIRECTORY};

/// Directories that are open at a time; those above them are found again from below.
const OPEN_DEPTH: usize = 32;
/// Files with several names that are remembered, so that each is counted once.
const MAX_LINKED: usize = 100_000;

/// What is in a directory, the directory included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    pub inodes: u64,
}

/// When to stop counting.
#[derive(Clone, Copy, Debug)]
pub struct Enough {
    /// As soon as there is more than this.
    pub bytes: u64,
    pub inodes: u64,
}

struct Level {
    /// None for a directory that was closed again.
    dir: Option<Dir>,
    identity: (u64, u64),
    /// Directories in it that have not been looked at.
    pending: Vec<OsString>,
}

struct Measuring {
    size: Size,
    linked: HashSet<u64>,
    device: u64,
    enough: Enough,
}

/// Counts until it is enough. Blocks.
pub fn measure(dir: Dir, enough: Enough) -> io::Result<Size> {
    let stat = dir.stat()?;
    let mut measuring = Measuring {
        size: Size {
            bytes: bytes_of(stat.st_blocks),
            inodes: 1,
        },
        linked: HashSet::new(),
        device: stat.st_dev,
        enough,
    };
    let mut levels = vec![measuring.level(dir)?];
    while let Some(mut level) = levels.pop() {
        let next = level.pending.pop();
        let (Some(name), Some(dir), false) = (next, &level.dir, measuring.is_enough()) else {
            if measuring.is_enough() {
                break;
            }
            go_up(&level, &mut levels)?;
            continue;
        };
        let child = dir.child(&name);
        levels.push(level);
        // One that vanished meanwhile holds nothing, and what is mounted belongs to others.
        if let Ok(child) = child
            && let Ok(below) = measuring.level(child)
        {
            levels.push(below);
            let depth = levels.len();
            if depth > OPEN_DEPTH {
                levels[depth - 1 - OPEN_DEPTH].dir = None;
            }
        }
    }
    Ok(measuring.size)
}

/// Makes the level above usable again. If somebody moved the directory meanwhile, what is above it is not where it was, and
/// what was counted so far has to do.
fn go_up(left: &Level, levels: &mut Vec<Level>) -> io::Result<()> {
    let Some(above) = levels.last_mut().filter(|above| above.dir.is_none()) else {
        return Ok(());
    };
    let found = match &left.dir {
        Some(dir) => Dir(openat(dir, "..", OPEN_DIRECTORY, Mode::empty())?),
        None => {
            levels.clear();
            return Ok(());
        }
    };
    match identity_of(&found)? == above.identity {
        true => above.dir = Some(found),
        false => levels.clear(),
    }
    Ok(())
}

fn identity_of(dir: &Dir) -> io::Result<(u64, u64)> {
    let stat = dir.stat()?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The kernel counts blocks of 512 bytes, whatever the file system's are.
fn bytes_of(blocks: i64) -> u64 {
    u64::try_from(blocks).unwrap_or(0) * 512
}

impl Measuring {
    /// Counts what is in a directory itself.
    fn level(&mut self, dir: Dir) -> io::Result<Level> {
        let mut pending = Vec::new();
        for (name, _) in dir.entries()? {
            let Ok(stat) = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let is_directory = super::is_directory(&stat);
            if stat.st_dev != self.device || (!is_directory && stat.st_nlink > 1 && !self.is_first(stat.st_ino)) {
                continue;
            }
            self.size.bytes += bytes_of(stat.st_blocks);
            self.size.inodes += 1;
            if is_directory {
                pending.push(name);
            }
            if self.is_enough() {
                break;
            }
        }
        Ok(Level {
            identity: identity_of(&dir)?,
            dir: Some(dir),
            pending,
        })
    }

    /// Whether a file with several names is seen for the first time.
    fn is_first(&mut self, inode: u64) -> bool {
        self.linked.len() >= MAX_LINKED || self.linked.insert(inode)
    }

    fn is_enough(&self) -> bool {
        self.size.bytes > self.enough.bytes || self.size.inodes > self.enough.inodes
    }
}
