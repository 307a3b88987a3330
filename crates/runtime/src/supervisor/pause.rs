//! The pause process: it holds a pod's namespaces, reaps what a shared process namespace leaves to it, and can do
//! nothing else. It has no capabilities, no files, and nobody may trace it.
//!
//! Its own mount namespace holds what the pod's containers share: the memory behind `/dev/shm`, and device nodes. So
//! a pod adds no mount to the host, and none can be left behind.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags};

use super::child::{Child, Pod, Stage, StartError, report_to};
use super::user_namespace::{self, UserNamespace};
use super::{dev, mounts};
use crate::procfs::Procfs;
use crate::spec::{PodFile, SandboxSpec};
use crate::sys::{self, CapabilitySets, Cloned};
use crate::within;

/// The user the pause process runs as: nobody that owns anything.
const PAUSE_ID: u32 = 65535;

/// What a new network namespace is given so that ordinary users may serve port 80 and ping, as elsewhere. A pod's
/// own sysctls come after and win.
const NETWORK_SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/ip_unprivileged_port_start", "0"),
    ("net/ipv4/ping_group_range", "0 2147483647"),
];

/// The same in a user namespace, which has no more groups than these.
const PING_GROUPS_OF_USER_NAMESPACE: (&str, &str) = ("net/ipv4/ping_group_range", "0 65535");

/// Creates the pod's namespaces with a pause process in them. Answers when they are ready.
pub fn create(spec: &SandboxSpec, user_namespace: Option<BorrowedFd<'_>>) -> io::Result<Child> {
    let mut namespaces = libc::CLONE_NEWNS;
    if spec.shared_pid {
        namespaces |= libc::CLONE_NEWPID;
    }
    if user_namespace.is_none() {
        namespaces |= pod_namespaces(spec);
    }
    let (ours, theirs) = super::child::channel()?;
    // SAFETY: the supervisor has a single thread.
    match unsafe { sys::clone_process(namespaces as u64, None)? } {
        Cloned::Child => {
            drop(ours);
            if let Err(error) = furnish(spec, user_namespace) {
                report_to(&theirs, &error);
            }
            drop(theirs);
            hold()
        }
        Cloned::Parent { pid, pidfd } => {
            drop(theirs);
            super::child::wait_until_ready(&ours)?;
            Ok(Child { pid, pidfd })
        }
    }
}

/// Those that belong to the pod's user namespace where it has one, and so can be made only in it.
fn pod_namespaces(spec: &SandboxSpec) -> libc::c_int {
    let network = libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
    let kinds = [(spec.own_network, network), (spec.own_ipc, libc::CLONE_NEWIPC)];
    kinds
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(0, |all, (_, kind)| all | kind)
}

fn furnish(spec: &SandboxSpec, user_namespace: Option<BorrowedFd<'_>>) -> Result<(), StartError> {
    sys::set_not_dumpable().stage("hiding the pause process")?;
    // The mounts need the host's privileges, which end in a user namespace, and leave the host's `/proc` behind.
    let proc = Procfs::open().stage("opening /proc")?;
    share_mounts(spec).stage("making the pod's shared mounts")?;
    if let Some(namespace) = user_namespace {
        user_namespace::enter(namespace)?;
        sys::unshare(pod_namespaces(spec)).stage("making the pod's namespaces")?;
    }
    configure(spec, &proc)
}

/// Sets what the pod's namespaces begin with.
fn configure(spec: &SandboxSpec, proc: &Procfs) -> Result<(), StartError> {
    if spec.own_network {
        if let Some(hostname) = &spec.hostname {
            rustix::system::sethostname(hostname.as_bytes()).stage("setting the hostname")?;
        }
        raise_loopback().stage("raising the loopback interface")?;
        let pings = spec.user_namespace.map(|_| &PING_GROUPS_OF_USER_NAMESPACE);
        for (name, value) in NETWORK_SYSCTLS.iter().chain(pings) {
            // Kernels without IPv4 have neither.
            let _ = set_sysctl(proc, name, value);
        }
    }
    spec.sysctls.iter().try_for_each(|(name, value)| {
        set_sysctl(proc, name, value).stage_with(|| format!("setting sysctl {name} to {value:?}"))
    })
}

/// Writes a sysctl of this process's namespaces, by its path below `/proc/sys`.
fn set_sysctl(proc: &Procfs, path: &str, value: &str) -> io::Result<()> {
    proc.write(&format!("sys/{path}"), value)
}

fn raise_loopback() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    sys::raise_interface(socket.as_fd(), "lo")
}

/// Leaves the host's file systems for one that holds only what containers share.
fn share_mounts(spec: &SandboxSpec) -> io::Result<()> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let nodev = MountAttrFlags::MOUNT_ATTR_NODEV;
    let safe = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let root = mounts::new("tmpfs", &[("mode", Some("755")), ("size", Some("1m"))], safe)?;
    for (name, major, minor) in dev::NODES {
        let device = makedev(*major, *minor);
        rustix::fs::mknodat(
            &root,
            *name,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            device,
        )?;
        // The mask of the process does not apply to a mode that is set afterwards.
        rustix::fs::chmodat(&root, *name, Mode::from_raw_mode(0o666), rustix::fs::AtFlags::empty())?;
    }
    for (name, contents) in &spec.files {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&root, file_name(name).as_str(), flags, Mode::from_raw_mode(0o644))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        fs::File::from(file).write_all(contents.as_bytes())?;
    }
    rustix::fs::mkdirat(&root, "shm", Mode::from_raw_mode(0o755))?;
    // Any directory does as a mount point in a namespace that no one else sees, and `/proc` always exists.
    mounts::attach(&root, fs::File::open("/proc")?.as_fd())?;
    if spec.own_ipc {
        let size = spec.shm_bytes.to_string();
        let shm = mounts::new("tmpfs", &[("mode", Some("1777")), ("size", Some(&size))], safe | nodev)?;
        mounts::attach(&shm, within::open(root.as_fd(), Path::new("shm"))?.as_fd())?;
    }
    rustix::process::fchdir(&root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// What a container takes from its pod, as detached mounts.
pub struct Shared {
    pub shm: OwnedFd,
    pub nodes: Vec<(&'static str, OwnedFd)>,
    pub files: Vec<(PathBuf, OwnedFd)>,
}

/// The name of a pod's file beside the device nodes.
fn file_name(name: &str) -> String {
    format!("file-{name}")
}

/// Takes the shared mounts: a look into the pause process's mount namespace and back.
pub fn take_shared(pod: &Pod<'_>, wanted: &[PodFile]) -> io::Result<Shared> {
    let host_shm = (!pod.own_ipc)
        .then(|| mounts::clone_of(CWD, Path::new("/dev/shm"), false))
        .transpose()?;
    let home = fs::File::open("/proc/self/ns/mnt")?;
    let directory = fs::File::open(".")?;
    sys::setns(pod.pause, libc::CLONE_NEWNS)?;
    let nodes = dev::NODES
        .iter()
        .map(|(name, major, minor)| take_node(name, *major, *minor).map(|node| (*name, node)));
    let nodes = nodes.collect::<io::Result<_>>()?;
    let files = wanted
        .iter()
        .map(|file| take_file(file, pod.user_namespace).map(|fd| (file.target.clone(), fd)));
    let files = files.collect::<io::Result<_>>()?;
    let shm = match host_shm {
        Some(shm) => shm,
        None => {
            let shm = mounts::clone_of(CWD, Path::new("/shm"), false)?;
            map_ids(&shm, pod.user_namespace)?;
            shm
        }
    };
    sys::setns(home.as_fd(), libc::CLONE_NEWNS)?;
    rustix::process::fchdir(&directory)?;
    Ok(Shared { shm, nodes, files })
}

/// Takes a device node. A container that may trace the pause process can get at its files, so the node is looked at.
fn take_node(name: &str, major: u32, minor: u32) -> io::Result<OwnedFd> {
    let node = mounts::clone_of(CWD, &Path::new("/").join(name), false)?;
    let stat = rustix::fs::fstat(&node)?;
    let character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    match character && stat.st_rdev == makedev(major, minor) {
        true => Ok(node),
        false => Err(io::Error::other(format!(
            "the pod's /dev/{name} is not the device it should be"
        ))),
    }
}

fn map_ids(mount: &OwnedFd, namespace: Option<UserNamespace<'_>>) -> io::Result<()> {
    namespace.map_or(Ok(()), |namespace| mounts::map_ids(mount, namespace.fd))
}

fn take_file(file: &PodFile, namespace: Option<UserNamespace<'_>>) -> io::Result<OwnedFd> {
    let fd = mounts::clone_of(CWD, &Path::new("/").join(file_name(&file.name)), false)?;
    map_ids(&fd, namespace)?;
    let readonly = if file.readonly { sys::MOUNT_ATTR_RDONLY } else { 0 };
    mounts::set(&fd, sys::MOUNT_ATTR_NODEV | readonly, false)?;
    Ok(fd)
}

/// What is left of the process: it waits, and reaps what it is given.
fn hold() -> ! {
    let ready = sys::set_name(c"pause")
        .and_then(|()| sys::close_all())
        .and_then(|()| give_up_privileges());
    if ready.is_err() {
        sys::exit_now(1);
    }
    // The supervisor, whose signal mask this process has, blocks the signal. All others but KILL are left unanswered,
    // so that no process of the pod can take the pod's namespaces away.
    loop {
        if sys::wait_for_signal(&[libc::SIGCHLD]).is_ok() {
            while sys::reap_any().is_some() {}
        }
    }
}

fn give_up_privileges() -> io::Result<()> {
    sys::set_groups(&[])?;
    sys::set_gid(PAUSE_ID)?;
    sys::set_uid(PAUSE_ID)?;
    sys::set_capabilities(CapabilitySets::default())?;
    sys::set_no_new_privileges()?;
    // Changing the user made the process dumpable or not as the host is configured.
    sys::set_not_dumpable()
}
