//! What a container may not see or change of the kernel's files: paths covered, paths made read-only, and `/proc` kept
//! for procfs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::mount::MountAttrFlags;

use super::child::{Stage, StartError};
use super::{mounts, stdio};
use crate::spec::ContainerSpec;
use crate::within::{self, Target};
use crate::{procfs, sys};

/// Files of `/proc` that a volume may stand for: those that tools such as lxcfs replace, and that protect nothing.
const REPLACEABLE: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/uptime",
];

/// Keeps volumes out of `/proc`: one there would take the place of files that the kernel is told things by, such as
/// a security label (CVE-2019-16884). `place` is where `target` has led, through whatever links.
pub fn refuse_procfs(target: &Path, place: &OwnedFd, mount: &OwnedFd) -> io::Result<()> {
    if !procfs::holds(place)? || REPLACEABLE.iter().any(|file| target == Path::new(file)) {
        return Ok(());
    }
    // Another procfs, such as the host's, is as good.
    if procfs::is_root(place)? && procfs::is_root(mount)? {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{:?} cannot be mounted because it is inside /proc",
        target.display().to_string()
    )))
}

/// What masked paths are covered with. It is taken before any volume is mounted: a container that could choose what
/// `/dev/null` is would choose what it gets in the place of a masked file (CVE-2025-31133).
pub struct Covers {
    null: OwnedFd,
}

impl Covers {
    /// `dev` is the container's own `/dev`, furnished.
    pub fn new(dev: &OwnedFd) -> io::Result<Self> {
        let null = within::open_plain(dev.as_fd(), Path::new("null"), OFlags::PATH)?;
        match stdio::is_null(&null)? {
            true => Ok(Self { null }),
            false => Err(io::Error::other("the pod's null device is something else")),
        }
    }

    /// Covers and protects what the container asks for.
    pub fn apply(&self, root: BorrowedFd<'_>, spec: &ContainerSpec) -> Result<(), StartError> {
        for path in &spec.masked_paths {
            self.mask(root, path).stage_with(|| format!("masking {path}"))?;
        }
        for path in &spec.readonly_paths {
            protect(root, path).stage_with(|| format!("making {path} read-only"))?;
        }
        Ok(())
    }

    /// Hides a path. What does not exist on this kernel needs no hiding.
    fn mask(&self, root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
        let Some(target) = existing(root, path)? else {
            return Ok(());
        };
        let cover = match Target::like(&target)? {
            Target::File => mounts::clone_of(self.null.as_fd(), Path::new(""), false)?,
            Target::Directory => empty_directory()?,
        };
        mounts::attach(&cover, target.as_fd())
    }
}

fn empty_directory() -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mounts::new("tmpfs", &[("size", Some("0"))], attributes)
}

fn protect(root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    let Some(target) = existing(root, path)? else {
        return Ok(());
    };
    let cover = mounts::clone_of(target.as_fd(), Path::new(""), true)?;
    mounts::set(&cover, sys::MOUNT_ATTR_RDONLY, true)?;
    mounts::attach(&cover, target.as_fd())
}

/// Opens a path to be covered. One below `/proc` is always the kernel's: everything else was kept out of there.
fn existing(root: BorrowedFd<'_>, path: &str) -> io::Result<Option<OwnedFd>> {
    let found = match Path::new(path).strip_prefix("/proc") {
        Ok(inner) => {
            let proc = within::open_plain(root, Path::new("proc"), OFlags::PATH | OFlags::DIRECTORY)?;
            if !procfs::is_root(&proc)? {
                return Err(io::Error::other("/proc is not the kernel's procfs"));
            }
            within::open(proc.as_fd(), inner)
        }
        Err(_) => within::open(root, Path::new(path)),
    };
    match found {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
