//! Mounts as descriptors: made or cloned detached from any path, then attached where a safe lookup leads.
//!
//! Where to attach is found through `within`, which never leads out of a container's root.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::sys::{self, MountAttributes};

/// A file system of its own, not yet attached anywhere. Options without a value are flags.
pub fn new(kind: &str, options: &[(&str, Option<&str>)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        match value {
            Some(value) => rustix::mount::fsconfig_set_string(context.as_fd(), *name, *value)?,
            None => rustix::mount::fsconfig_set_flag(context.as_fd(), *name)?,
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    Ok(rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// A copy of what is seen at a path, with everything mounted below it if `recursive`, to be attached elsewhere.
pub fn clone_of(dir: BorrowedFd<'_>, path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    Ok(rustix::mount::open_tree(dir, path, flags)?)
}

/// Attaches a detached mount over what a descriptor refers to.
pub fn attach(mount: &OwnedFd, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount, c"", target, c"", flags)?)
}

pub fn set(mount: &OwnedFd, attributes: u64, recursive: bool) -> io::Result<()> {
    sys::mount_setattr(
        mount.as_fd(),
        recursive,
        &MountAttributes {
            set: attributes,
            ..Default::default()
        },
    )
}

/// Shows the owners of a detached mount's files as the ids of a user namespace, and takes what is created through it
/// as theirs. What is mounted below it is left as it is: ids that the namespace does not have own nothing in it.
pub fn map_ids(mount: &OwnedFd, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = MountAttributes {
        set: sys::MOUNT_ATTR_IDMAP,
        userns_fd: user_namespace.as_raw_fd() as u64,
        ..Default::default()
    };
    sys::mount_setattr(mount.as_fd(), false, &attributes).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::other("this kernel cannot map the ids of the file system (MOUNT_ATTR_IDMAP)"),
        _ => error,
    })
}

pub fn set_propagation(mount: &OwnedFd, propagation: u64) -> io::Result<()> {
    sys::mount_setattr(
        mount.as_fd(),
        true,
        &MountAttributes {
            propagation,
            ..Default::default()
        },
    )
}
