//! Giving a volume with all its files to the pod's group, as `fsGroup` asks for.
//!
//! The files are those of pods that used the volume before: links, devices and trees without end among them. Everything is
//! reached by descriptor, no link is followed and no mount entered. The set-user-ID and set-group-ID bits of files that
//! change their group are lost, as the kernel wills it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, chmod, chownat, fstat, openat};

use crate::beneath::{self, Dir};

/// Directories of a volume that are within each other; a tree that is deeper is an attack.
const MAX_DEPTH: usize = 256;
const FILE_BITS: u32 = 0o660;
const DIRECTORY_BITS: u32 = 0o2770;

/// Makes everything in the directory the group's. If `only_on_mismatch`, that its root is the group's says that all is.
pub fn set_group(directory: &Dir, group: u32, only_on_mismatch: bool) -> io::Result<()> {
    let root = directory.stat()?;
    let is_owned = root.st_gid == group && root.st_mode & DIRECTORY_BITS == DIRECTORY_BITS;
    if only_on_mismatch && is_owned {
        return Ok(());
    }
    own_entries(directory, group, 0)?;
    // The root last: a walk that did not come to its end is not taken as done.
    own_directory(directory, group)
}

fn own_entries(directory: &Dir, group: u32, depth: usize) -> io::Result<()> {
    if depth == MAX_DEPTH {
        return Err(io::Error::other("directories are nested too deeply"));
    }
    for (name, _) in directory.entries()? {
        match own_entry(directory, &name, group, depth) {
            // Somebody removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

fn own_entry(parent: &Dir, name: &OsStr, group: u32, depth: usize) -> io::Result<()> {
    let found = openat(
        parent,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let stat = fstat(&found)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let child = match parent.child(name) {
            // What is mounted there is not the volume's.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => return Ok(()),
            child => child?,
        };
        own_entries(&child, group, depth + 1)?;
        return own_directory(&child, group);
    }
    if stat.st_gid != group {
        chownat(&found, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    // Links have no mode, and what a device or socket lets do is not for a group to decide.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let mode = fstat(&found)?.st_mode & 0o7777;
    match mode & FILE_BITS == FILE_BITS {
        true => Ok(()),
        false => Ok(chmod(
            beneath::path_of(found.as_fd()),
            Mode::from_raw_mode(mode | FILE_BITS),
        )?),
    }
}

fn own_directory(directory: &Dir, group: u32) -> io::Result<()> {
    let stat = directory.stat()?;
    if stat.st_gid != group {
        directory.set_group(group)?;
    }
    match stat.st_mode & DIRECTORY_BITS == DIRECTORY_BITS {
        true => Ok(()),
        false => directory.set_mode((stat.st_mode & 0o7777) | DIRECTORY_BITS),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    const GROUP: u32 = 4321;

    fn facts(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).unwrap();
        (found.gid(), found.mode() & 0o7777)
    }

    #[test]
    fn everything_becomes_the_groups_and_nothing_outside() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: changing owners needs root");
        }
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::write(volume.join("a/b/f"), "x").unwrap();
        fs::write(&outside, "x").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        fs::write(volume.join("setuid"), "x").unwrap();
        fs::set_permissions(volume.join("setuid"), fs::Permissions::from_mode(0o6755)).unwrap();
        let fifo = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, volume.join("fifo"), FileType::Fifo, fifo, 0).unwrap();
        set_group(&Dir::open(&volume).unwrap(), GROUP, false).unwrap();
        assert_eq!(facts(&volume), (GROUP, 0o2775));
        assert_eq!(facts(&volume.join("a/b")), (GROUP, 0o2775));
        assert_eq!(facts(&volume.join("a/b/f")), (GROUP, 0o664));
        assert_eq!(facts(&volume.join("link")).0, GROUP);
        assert_eq!(facts(&volume.join("fifo")), (GROUP, 0o600));
        let (group, mode) = facts(&volume.join("setuid"));
        assert_eq!(
            (group, mode & 0o6000),
            (GROUP, 0),
            "nobody gets another's set-user-ID program"
        );
        assert_eq!(facts(&outside), (0, 0o600), "a link was followed");
    }

    #[test]
    fn a_root_that_is_the_groups_is_not_looked_into_if_so_wished() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: changing owners needs root");
        }
        let dir = tempfile::tempdir().unwrap();
        let root = Dir::open(dir.path()).unwrap();
        set_group(&root, GROUP, true).unwrap();
        fs::write(dir.path().join("f"), "x").unwrap();
        std::os::unix::fs::chown(dir.path().join("f"), None, Some(1)).unwrap();
        set_group(&root, GROUP, true).unwrap();
        assert_eq!(facts(&dir.path().join("f")).0, 1);
        set_group(&root, GROUP, false).unwrap();
        assert_eq!(facts(&dir.path().join("f")).0, GROUP);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut here = Dir::open(dir.path()).unwrap();
        for _ in 0..=MAX_DEPTH {
            here = here.make_child(OsStr::new("d"), 0o700).unwrap();
        }
        assert!(
            set_group(
                &Dir::open(dir.path()).unwrap(),
                rustix::process::getegid().as_raw(),
                false
            )
            .is_err()
        );
    }
}
