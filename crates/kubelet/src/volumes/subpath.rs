//! Subpaths of volumes, resolved without ever leaving the volume.
//!
//! A container may write links into its volume, and change them while we look. So a subpath is opened beneath the
//! volume's root by the kernel, links and all, and what was opened is bound to a path of ours; the container is given
//! that path.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Binds `subpath` of `volume` to `target`. What does not exist is made as a directory.
pub fn bind(volume: &Path, subpath: &str, target: &Path) -> Result<(), String> {
    if super::mount::is_mount_point(target) {
        return Ok(());
    }
    let opened = open_beneath(volume, subpath)?;
    let failed = |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", target.display());
    let is_dir = rustix::fs::fstat(&opened).map_err(|error| failed("look at", error.into()))?;
    let is_dir = rustix::fs::FileType::from_raw_mode(is_dir.st_mode) == rustix::fs::FileType::Directory;
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent).map_err(|error| failed("make a place for", error))?;
    }
    match is_dir {
        true => std::fs::create_dir_all(target).map_err(|error| failed("make", error))?,
        false => _ = std::fs::File::create(target).map_err(|error| failed("make", error))?,
    }
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    rustix::mount::mount_bind(source, target).map_err(|error| failed("bind", error.into()))
}

/// Opens a path beneath a root, making missing directories on the way.
pub fn open_beneath(volume: &Path, subpath: &str) -> Result<OwnedFd, String> {
    let refused = |why: &str| format!("subpath {subpath:?} of {} {why}", volume.display());
    let relative = Path::new(subpath);
    if relative.is_absolute() || relative.components().any(|part| part == Component::ParentDir) {
        return Err(refused("must be relative and may not contain '..'"));
    }
    let open = |root: &OwnedFd, path: &Path| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat2(
            root,
            path,
            flags,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        )
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(volume, flags, Mode::empty()).map_err(|error| refused(&error.to_string()))?;
    match open(&root, relative) {
        Ok(opened) => return Ok(opened),
        Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(refused(&format!("cannot be opened: {error}"))),
    }
    let mut reached = root;
    for part in relative.components() {
        let Component::Normal(name) = part else { continue };
        let name = Path::new(name);
        // Somebody may make it first; then it is theirs and is only opened.
        match rustix::fs::mkdirat(&reached, name, Mode::from_raw_mode(0o750)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(refused(&format!("cannot be made: {error}"))),
        }
        reached = open(&reached, name).map_err(|error| refused(&format!("cannot be opened: {error}")))?;
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subpaths_are_made_and_never_leave_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        open_beneath(&volume, "a/b").unwrap();
        assert!(volume.join("a/b").is_dir());

        std::os::unix::fs::symlink("/etc", volume.join("out")).unwrap();
        std::os::unix::fs::symlink("a", volume.join("in")).unwrap();
        assert!(open_beneath(&volume, "out").is_err());
        assert!(open_beneath(&volume, "out/passwd").is_err());
        assert!(open_beneath(&volume, "in/b").is_ok());
        assert!(open_beneath(&volume, "../x").is_err());
        assert!(open_beneath(&volume, "/etc").is_err());
    }
}
