//! File systems on devices that are empty.
//!
//! Upstream makes one where `blkid` recognizes nothing. Data without a header that it knows would be lost, so here a
//! device counts as empty only if it holds zeros where headers and their copies stand: at its beginning and its end.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use crate::beneath;

/// How much of each end must be zeros.
const END_BYTES: u64 = 1 << 20;
/// The file systems that can be made, and what their programs are told beside the device.
const KINDS: &[(&str, &[&str])] = &[
    ("btrfs", &[]),
    ("ext2", &[]),
    ("ext3", &["-F", "-m0"]),
    ("ext4", &["-F", "-m0"]),
    ("xfs", &["-f"]),
];
/// Where their programs are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Of what a program says when it fails, so much is told.
const MAX_TOLD: usize = 400;

/// Two pods that want the same device must not both find it empty.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("it has no file system, and a file system {0:?} cannot be made here")]
    UnknownKind(String),
    #[error("it has no {0} file system, but it is not empty: whatever is on it is left alone")]
    NotEmpty(String),
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    #[error("failed to run mkfs.{kind}: {source}")]
    Start { kind: String, source: io::Error },
    #[error("mkfs.{kind} failed: {said}")]
    Failed { kind: String, said: String },
}

/// Makes a file system on an empty device. One that is in use is not looked at.
pub fn format(device: &OwnedFd, kind: &str) -> Result<(), FormatError> {
    let Some((_, arguments)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return Err(FormatError::UnknownKind(kind.to_owned()));
    };
    let _alone = ONE_AT_A_TIME.lock();
    if !is_empty(device).map_err(FormatError::Read)? {
        return Err(FormatError::NotEmpty(kind.to_owned()));
    }
    // The descriptor, and not a path that may lead elsewhere by now.
    let path = format!("/proc/{}/fd/{}", std::process::id(), device.as_raw_fd());
    tracing::info!(kind, "Making a file system on an empty device");
    let output = Command::new(format!("mkfs.{kind}"))
        .args(*arguments)
        .arg(path)
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|source| FormatError::Start {
        kind: kind.to_owned(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(MAX_TOLD).collect();
    Err(FormatError::Failed {
        kind: kind.to_owned(),
        said: format!("{} {said}", output.status),
    })
}

fn is_empty(device: &OwnedFd) -> io::Result<bool> {
    // Exclusively: a device that is mounted or part of another is busy.
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let opened = rustix::fs::open(beneath::path_of(device.as_fd()), flags, Mode::empty())?;
    has_empty_ends(&mut File::from(opened))
}

fn has_empty_ends(device: &mut (impl Read + Seek)) -> io::Result<bool> {
    let size = device.seek(SeekFrom::End(0))?;
    for start in [0, size.saturating_sub(END_BYTES)] {
        device.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        device.by_ref().take(END_BYTES).read_to_end(&mut end)?;
        if end.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(size > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_device_is_empty_if_both_its_ends_are() {
        let check = |size: usize, written: &[usize]| {
            let mut device = vec![0; size];
            written.iter().for_each(|at| device[*at] = 1);
            has_empty_ends(&mut Cursor::new(device)).unwrap()
        };
        let mib = 1 << 20;
        assert!(check(4 * mib, &[]) && check(mib / 2, &[]));
        assert!(!check(0, &[]), "nothing can be made on nothing");
        for at in [0, 1080, mib - 1, 3 * mib, 4 * mib - 1] {
            assert!(!check(4 * mib, &[at]), "a byte at {at}");
        }
        assert!(!check(mib / 2, &[mib / 4]));
    }

    #[test]
    fn kinds_that_are_not_known_run_no_program() {
        let file = tempfile::tempfile().unwrap();
        for kind in ["", "vfat", "ext4 -F", "../ext4", "ext4;true"] {
            let refused = format(&OwnedFd::from(file.try_clone().unwrap()), kind).unwrap_err();
            assert!(matches!(refused, FormatError::UnknownKind(_)), "{kind}: {refused}");
        }
    }
}
