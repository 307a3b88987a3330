//! A container's `/dev`.
//!
//! Unless the container is privileged, every mount in it refuses device nodes, `/dev` included: a container that
//! may make nodes gains nothing by it. The nodes it does get are bound in one by one from mounts that allow them. For
//! those that may mount there are the cgroup's [`rules`] as well.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::MountAttrFlags;

use super::child::{Pod, Stage, StartError};
use super::{mask, mounts, pause, root};
use crate::cgroup::{self, Access, DeviceKind, DeviceRule};
use crate::spec::{ContainerSpec, Device};
use crate::sys;
use crate::within::{self, Target};

/// The nodes every container has, by device number. The pause process makes them, once for the pod.
pub const NODES: &[(&str, u32, u32)] = &[
    ("full", 1, 7),
    ("null", 1, 3),
    ("random", 1, 8),
    ("tty", 5, 0),
    ("urandom", 1, 9),
    ("zero", 1, 5),
];

const LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("ptmx", "pts/ptmx"),
    ("stderr", "/proc/self/fd/2"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
];

const DIRECTORIES: &[&str] = &["mqueue", "pts", "shm"];

/// The group that owns terminals, by the convention of every distribution.
const TTY_GROUP: u32 = 5;

const DEVPTS_SUPER_MAGIC: u64 = 0x1cd1;

/// How deep below the host's `/dev` a privileged container gets its devices from.
const MAX_DEPTH: u32 = 4;

/// A device of the host, to be bound into a container.
pub fn take(device: &Device) -> io::Result<OwnedFd> {
    let fd = mounts::clone_of(CWD, &device.source, false)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    if !matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
        return Err(io::Error::other("not a device"));
    }
    mounts::set_propagation(&fd, libc::MS_PRIVATE)?;
    Ok(fd)
}

/// The rules of a container's cgroup; none for one that may open everything. In a user namespace of its own none may.
pub fn rules(spec: &ContainerSpec, own_users: bool) -> io::Result<Option<Vec<DeviceRule>>> {
    if spec.privileged && !own_users {
        return Ok(None);
    }
    let given = spec.devices.iter().map(|device| {
        let stat = rustix::fs::stat(&device.source)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => DeviceKind::Block,
            FileType::CharacterDevice => DeviceKind::Character,
            _ => return Err(io::Error::other(format!("{} is not a device", device.source.display()))),
        };
        let access = Access::parse(&device.access).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(DeviceRule {
            kind,
            major: Some(rustix::fs::major(stat.st_rdev)),
            minor: Some(rustix::fs::minor(stat.st_rdev)),
            access,
        })
    });
    Ok(Some(cgroup::with_given(&given.collect::<io::Result<Vec<_>>>()?)))
}

/// Mounts and fills `/dev`. Answers it without whatever is mounted over it later.
pub fn populate(
    root_fd: BorrowedFd<'_>,
    spec: &ContainerSpec,
    pod: &Pod<'_>,
    shared: pause::Shared,
    devices: Vec<(PathBuf, OwnedFd)>,
) -> Result<OwnedFd, StartError> {
    let gets_devices = root::gets_devices(spec, pod);
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, !gets_devices);
    // Its owner is root whoever this process touches files as; mapped ids make it the pod's.
    let options = [
        ("mode", Some("755")),
        ("size", Some("65536k")),
        ("uid", Some("0")),
        ("gid", Some("0")),
    ];
    let dev = mounts::new("tmpfs", &options, attributes).stage("making /dev")?;
    if let Some(namespace) = pod.user_namespace {
        mounts::map_ids(&dev, namespace.fd).stage("mapping the ids of /dev")?;
    }
    let place = within::ensure(root_fd, Path::new("/dev"), Target::Directory).stage("mounting /dev")?;
    mounts::attach(&dev, place.as_fd()).stage("mounting /dev")?;
    furnish(&dev).stage("furnishing /dev")?;
    mount_parts(&dev, pod, shared).stage("mounting the parts of /dev")?;
    if gets_devices {
        copy_nodes(Path::new("/dev"), dev.as_fd(), 0).stage("copying the host's devices")?;
    }
    for (target, device) in devices {
        let stage = || format!("adding device {}", target.display());
        let place = within::ensure(root_fd, &target, Target::File).stage_with(stage)?;
        mask::refuse_procfs(&target, &place, &device).stage_with(stage)?;
        mounts::attach(&device, place.as_fd()).stage_with(stage)?;
    }
    Ok(dev)
}

fn furnish(dev: &OwnedFd) -> io::Result<()> {
    for name in DIRECTORIES {
        rustix::fs::mkdirat(dev, *name, Mode::from_raw_mode(0o755))?;
    }
    for (name, target) in LINKS {
        rustix::fs::symlinkat(*target, dev, *name)?;
    }
    Ok(())
}

fn mount_parts(dev: &OwnedFd, pod: &Pod<'_>, shared: pause::Shared) -> io::Result<()> {
    let tty_group = match pod.user_namespace {
        Some(namespace) => namespace
            .mappings
            .gids
            .host_id_of(TTY_GROUP)
            .ok_or(io::ErrorKind::InvalidInput)?,
        None => TTY_GROUP,
    };
    let tty_group = tty_group.to_string();
    let safe = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let at = |name: &str, kind: Target, mount: OwnedFd| {
        let place = within::ensure(dev.as_fd(), Path::new(name), kind)?;
        mounts::attach(&mount, place.as_fd())
    };
    let options = [
        ("ptmxmode", Some("0666")),
        ("mode", Some("0620")),
        ("gid", Some(tty_group.as_str())),
    ];
    at("pts", Target::Directory, mounts::new("devpts", &options, safe)?)?;
    let queues = mounts::new("mqueue", &[], safe | MountAttrFlags::MOUNT_ATTR_NODEV)?;
    at("mqueue", Target::Directory, queues)?;
    at("shm", Target::Directory, shared.shm)?;
    shared
        .nodes
        .into_iter()
        .try_for_each(|(name, node)| at(name, Target::File, node))
}

/// Makes the nodes of the host's `/dev` that the container's lacks.
fn copy_nodes(from: &Path, to: BorrowedFd<'_>, depth: u32) -> io::Result<()> {
    for entry in std::fs::read_dir(from)?.flatten() {
        let name = entry.file_name();
        let Ok(stat) = rustix::fs::lstat(entry.path()) else {
            continue;
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::Directory if depth < MAX_DEPTH && !(depth == 0 && DIRECTORIES.iter().any(|d| name == *d)) => {
                let place = within::ensure(to, Path::new(&name), Target::Directory)?;
                copy_nodes(&entry.path(), place.as_fd(), depth + 1)?;
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                match rustix::fs::mknodat(to, &name, kind, mode, stat.st_rdev) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens a new terminal of the container this process is in: its master side, and its slave.
///
/// The container may have put anything at the path, and its processes may be changing it at this moment, so what was
/// opened is looked at before it is used (CVE-2025-52565).
pub fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", path, Mode::empty())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let master = within::open_plain(root.as_fd(), Path::new("dev/pts/ptmx"), flags)?;
    let stat = rustix::fs::fstat(&master)?;
    let on_devpts = rustix::fs::fstatfs(&master)?.f_type as u64 == DEVPTS_SUPER_MAGIC;
    if !on_devpts || stat.st_rdev != rustix::fs::makedev(5, 2) {
        return Err(io::Error::other("/dev/pts/ptmx is not a terminal multiplexer"));
    }
    let slave = sys::open_slave(master.as_fd())?;
    Ok((master, slave))
}
