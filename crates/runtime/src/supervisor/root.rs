//! A container's file system: built in the container's own mount namespace, so that it vanishes with it.
//!
//! The order matters. Everything that comes from outside is taken first, as detached mounts, while this namespace
//! still shares the host's mount events: that is what lets later mounts of the host reach a `HostToContainer` volume.
//! Then the namespace is cut off, the overlay mounted, the pieces attached, and the host left behind.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags};

use super::child::{Pod, Stage, StartError};
use super::mask::{self, Covers};
use super::mounts;
use super::user_namespace::UserNamespace;
use super::{dev, pause};
use crate::cgroup::Layout;
use crate::spec::{ContainerSpec, Mount, Propagation, Root};
use crate::sys;
use crate::within::{self, Target};

const NODEV: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODEV;
const NOSUID: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID;
const NOEXEC: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC;
const RDONLY: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY;

/// What the container gets from outside its root.
pub struct Taken {
    binds: Vec<(PathBuf, OwnedFd)>,
    pod: pause::Shared,
    devices: Vec<(PathBuf, OwnedFd)>,
}

/// Takes everything from outside, before [`build`] cuts the namespace off.
pub fn take(spec: &ContainerSpec, pod: &Pod<'_>) -> Result<Taken, StartError> {
    let binds = spec.mounts.iter().filter(|mount| mount.layers.is_empty()).map(|mount| {
        let stage = || format!("mounting {} at {}", mount.source.display(), mount.target.display());
        bind(mount, gets_devices(spec, pod), pod.user_namespace)
            .stage_with(stage)
            .map(|fd| (mount.target.clone(), fd))
    });
    let binds = binds.collect::<Result<_, _>>()?;
    let devices = spec.devices.iter().map(|device| {
        let stage = || format!("adding device {}", device.source.display());
        dev::take(device)
            .stage_with(stage)
            .map(|fd| (device.target.clone(), fd))
    });
    let devices = devices.collect::<Result<_, _>>()?;
    let pod = pause::take_shared(pod, &spec.pod_files).stage("taking the pod's shared mounts")?;
    Ok(Taken { binds, pod, devices })
}

/// Whether device nodes of whatever file system open devices. In a user namespace no container is that privileged: its
/// root owns the files it sees, and would own the nodes among them.
pub fn gets_devices(spec: &ContainerSpec, pod: &Pod<'_>) -> bool {
    spec.privileged && pod.user_namespace.is_none()
}

/// Builds the root and moves this process into it.
pub fn build(spec: &ContainerSpec, pod: &Pod<'_>, taken: Taken) -> Result<(), StartError> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .stage("leaving the host's mount events")?;
    if let Some(namespace) = pod.user_namespace {
        for dir in [&spec.root.layers_dir, &spec.root.dir] {
            map_ids_in_place(dir, namespace).stage_with(|| format!("mapping the ids of {}", dir.display()))?;
        }
    }
    let mut binds = taken.binds;
    for mount in spec.mounts.iter().filter(|mount| !mount.layers.is_empty()) {
        let stage = || format!("mounting an image at {}", mount.target.display());
        let fd = image(mount, &spec.root.dir).stage_with(stage)?;
        binds.push((mount.target.clone(), fd));
    }
    // Parents before what is mounted in them.
    binds.sort_by_key(|(target, _)| target.components().count());
    let root = overlay(&spec.root, gets_devices(spec, pod)).stage("mounting the container's root")?;
    let root_fd = root.as_fd();
    mount_kernel_file_systems(root_fd, spec, pod.layout)?;
    let mut shared = taken.pod;
    let pod_files = std::mem::take(&mut shared.files);
    let dev = dev::populate(root_fd, spec, pod, shared, taken.devices)?;
    let covers = Covers::new(&dev).stage("taking the null device")?;
    // The pod's files come last: a volume may be the directory they are in.
    for (target, mount) in binds.into_iter().chain(pod_files) {
        let stage = || format!("mounting at {}", target.display());
        mount_volume(root_fd, &target, &mount).stage_with(stage)?;
    }
    make_working_directory(root_fd, &spec.process.cwd)?;
    pivot(&root).stage("entering the container's root")?;
    covers.apply(root_fd, spec)?;
    if spec.root.readonly {
        mounts::set(&root, sys::MOUNT_ATTR_RDONLY, false).stage("making the root read-only")?;
    }
    Ok(())
}

/// Mounts what comes from outside where the container wants it, inside the root whatever links lead there.
fn mount_volume(root: BorrowedFd<'_>, target: &Path, mount: &OwnedFd) -> io::Result<()> {
    let place = within::ensure(root, target, Target::like(mount)?)?;
    mask::refuse_procfs(target, &place, mount)?;
    mounts::attach(mount, place.as_fd())
}

/// Covers a directory with itself, its files owned by the ids of a user namespace. An overlay cannot be mapped as a
/// whole on any kernel; its layers can.
fn map_ids_in_place(dir: &Path, namespace: UserNamespace<'_>) -> io::Result<()> {
    let mapped = mounts::clone_of(CWD, dir, false)?;
    mounts::map_ids(&mapped, namespace.fd)?;
    mounts::attach(&mapped, std::fs::File::open(dir)?.as_fd())
}

fn bind(mount: &Mount, devices: bool, namespace: Option<UserNamespace<'_>>) -> io::Result<OwnedFd> {
    if mount.propagation == Propagation::Bidirectional {
        require_shared(&mount.source)?;
    }
    let fd = mounts::clone_of(CWD, &mount.source, true)?;
    if let Some(namespace) = namespace.filter(|_| mount.id_mapped) {
        mounts::map_ids(&fd, namespace.fd)?;
    }
    match mount.propagation {
        Propagation::Private => mounts::set_propagation(&fd, libc::MS_PRIVATE)?,
        Propagation::HostToContainer => mounts::set_propagation(&fd, libc::MS_SLAVE)?,
        Propagation::Bidirectional => {}
    }
    // Devices reach a container by name only: a node that someone made in a volume opens nothing.
    if !devices {
        mounts::set(&fd, sys::MOUNT_ATTR_NODEV, true)?;
    }
    if mount.readonly {
        mounts::set(&fd, sys::MOUNT_ATTR_RDONLY, mount.recursive_readonly)?;
    }
    Ok(fd)
}

/// The files of an image, to be read only. `point` is any directory, for a moment.
fn image(mount: &Mount, point: &Path) -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let open = |path: &Path| rustix::fs::open(path, flags, rustix::fs::Mode::empty());
    let root = match mount.layers.as_slice() {
        [only] => open(&mount.source.join(only))?,
        layers => {
            std::env::set_current_dir(&mount.source)?;
            let options = CString::new(format!("lowerdir={}", layers.join(":")))?;
            rustix::mount::mount("overlay", point, "overlay", MountFlags::RDONLY, options.as_c_str())?;
            open(point)?
        }
    };
    let shown = match mount.sub_path.as_os_str().is_empty() {
        true => mounts::clone_of(root.as_fd(), Path::new(""), false),
        false => within::open(root.as_fd(), &mount.sub_path)
            .and_then(|inner| mounts::clone_of(inner.as_fd(), Path::new(""), false)),
    };
    drop(root);
    if mount.layers.len() > 1 {
        rustix::mount::unmount(point, UnmountFlags::DETACH)?;
    }
    let shown = shown?;
    mounts::set(&shown, sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NODEV, false)?;
    Ok(shown)
}

/// Mounts made in the container can reach the host only through a mount whose events the host shares.
fn require_shared(source: &Path) -> io::Result<()> {
    let source = source.canonicalize()?;
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo")?;
    let holding = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let point = fields.nth(4)?;
        source
            .starts_with(point)
            .then(|| (point.len(), fields.any(|field| field.starts_with("shared:"))))
    });
    match holding.max_by_key(|(length, _)| *length) {
        Some((_, true)) => Ok(()),
        _ => Err(io::Error::other(format!(
            "path {:?} is not a shared mount",
            source.display().to_string()
        ))),
    }
}

fn overlay(root: &Root, devices: bool) -> io::Result<OwnedFd> {
    // Any directory does as a mount point in a namespace of one's own; this one saves making another.
    let point = &root.dir;
    // Layers are named relative to their directory: the options of a mount must fit one page.
    std::env::set_current_dir(&root.layers_dir)?;
    // The writable layer does not outlive the machine, so there is no use in syncing it; unmounting is quick.
    let options = format!(
        "lowerdir={},upperdir={},workdir={},volatile",
        root.layers.join(":"),
        root.dir.join("upper").display(),
        root.dir.join("work").display(),
    );
    let options = CString::new(options)?;
    let mut flags = MountFlags::NODEV;
    flags.set(MountFlags::NODEV, !devices);
    rustix::mount::mount("overlay", point, "overlay", flags, options.as_c_str())?;
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(point, flags, rustix::fs::Mode::empty())?)
}

/// `/proc`, `/sys` and the container's view of its cgroups.
fn mount_kernel_file_systems(root: BorrowedFd<'_>, spec: &ContainerSpec, layout: &Layout) -> Result<(), StartError> {
    let base = NODEV | NOSUID | NOEXEC;
    let readonly = if spec.privileged {
        MountAttrFlags::empty()
    } else {
        RDONLY
    };
    // An image that makes one of them a link could lead it to where a volume is mounted later (CVE-2019-19921).
    let at = |name: &str, kind: &str, attributes: MountAttrFlags| {
        let mount = mounts::new(kind, &[], attributes)?;
        let place = within::ensure_plain_directory(root, name)?;
        mounts::attach(&mount, place.as_fd())
    };
    at("proc", "proc", base).stage("mounting /proc")?;
    at("sys", "sysfs", base | readonly).stage("mounting /sys")?;
    mount_cgroups(root, layout, base | readonly).stage("mounting /sys/fs/cgroup")
}

fn mount_cgroups(root: BorrowedFd<'_>, layout: &Layout, attributes: MountAttrFlags) -> io::Result<()> {
    let top = within::open(root, Path::new("/sys/fs/cgroup"))?;
    let Layout::Legacy { hierarchies } = layout else {
        return mounts::attach(&mounts::new("cgroup2", &[], attributes)?, top.as_fd());
    };
    let hierarchies = || hierarchies.iter().filter(|hierarchy| hierarchy.is_shown());
    let dir = mounts::new("tmpfs", &[("mode", Some("755"))], attributes & !RDONLY)?;
    for hierarchy in hierarchies() {
        let name = hierarchy.controllers.join(",");
        let name = name.strip_prefix("name=").unwrap_or(&name);
        rustix::fs::mkdirat(&dir, name, rustix::fs::Mode::from_raw_mode(0o755))?;
        // As on a host: a controller is found by its own name too.
        for controller in hierarchy.controllers.iter().filter(|_| hierarchy.controllers.len() > 1) {
            rustix::fs::symlinkat(name, &dir, controller.as_str())?;
        }
    }
    mounts::attach(&dir, top.as_fd())?;
    for hierarchy in hierarchies() {
        let name = hierarchy.controllers.join(",");
        let options: Vec<_> = match name.strip_prefix("name=") {
            Some(name) => vec![("none", None), ("name", Some(name))],
            None => hierarchy
                .controllers
                .iter()
                .map(|controller| (controller.as_str(), None))
                .collect(),
        };
        let place = within::open(dir.as_fd(), Path::new(name.strip_prefix("name=").unwrap_or(&name)))?;
        mounts::attach(&mounts::new("cgroup", &options, attributes)?, place.as_fd())?;
    }
    mounts::set(&dir, u64::from((attributes & RDONLY).bits()), false)
}

fn make_working_directory(root: BorrowedFd<'_>, cwd: &str) -> Result<(), StartError> {
    within::ensure(root, Path::new(cwd), Target::Directory)
        .map(drop)
        .stage_with(|| format!("making the working directory {cwd}"))
}

/// Makes a directory the root of everything and detaches the old root from it.
fn pivot(root: &OwnedFd) -> io::Result<()> {
    rustix::process::fchdir(root)?;
    // The old root ends up mounted over the new one, so no directory is needed to put it in.
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}
