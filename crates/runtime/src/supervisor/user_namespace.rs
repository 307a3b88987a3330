//! A pod's user namespace: its root is an ordinary user of the host.
//!
//! The supervisor makes the namespace and holds it. A container's file system is still built with the host's
//! privileges, by a process that touches files as the pod's root; only then does that process enter the namespace and
//! take a copy of its mounts along. The kernel locks every mount of such a copy, so that no process of the pod can
//! uncover what was covered or write to what is read-only.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::child::{Stage, StartError};
use super::mounts;
use crate::procfs;
use crate::spec::{IdMappings, IdRange};
use crate::sys::{self, CapabilitySets};

/// The namespace of the pod that a container is started in.
#[derive(Clone, Copy)]
pub struct UserNamespace<'a> {
    pub fd: BorrowedFd<'a>,
    pub mappings: IdMappings,
}

/// Makes a user namespace with the given ids. It lasts as long as the descriptor, or a process in it.
pub fn create(mappings: &IdMappings) -> io::Result<OwnedFd> {
    let (pid, pidfd) = sys::hold_user_namespace()?;
    let made = map_and_open(pid, mappings);
    // Fails only for a process that has ended.
    let _ = rustix::process::pidfd_send_signal(pidfd.as_fd(), rustix::process::Signal::KILL);
    sys::wait_for_end(pid);
    made
}

fn map_and_open(pid: sys::pid_t, mappings: &IdMappings) -> io::Result<OwnedFd> {
    let line = |range: &IdRange| format!("{} {} {}\n", range.container_id, range.host_id, range.length);
    procfs::write(&format!("{pid}/uid_map"), &line(&mappings.uids))?;
    procfs::write(&format!("{pid}/gid_map"), &line(&mappings.gids))?;
    Ok(File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// Whether this kernel can do everything that a pod with a user namespace needs of it. `dir` is where containers' files
/// are.
pub fn probe(dir: &std::path::Path) -> io::Result<()> {
    let range = IdRange {
        container_id: 0,
        host_id: 1 << 16,
        length: 1 << 16,
    };
    let doing = |what: &'static str| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let mappings = IdMappings {
        uids: range,
        gids: range,
    };
    let namespace = create(&mappings).map_err(doing("creating a user namespace"))?;
    let files = mounts::clone_of(rustix::fs::CWD, dir, false)?;
    mounts::map_ids(&files, namespace.as_fd()).map_err(doing("mapping the ids of the containers' file system"))?;
    // Volumes in memory, such as those of Secrets. A kernel that can do this can map the layers of an overlay as well.
    let memory = mounts::new("tmpfs", &[], rustix::mount::MountAttrFlags::empty())?;
    mounts::map_ids(&memory, namespace.as_fd()).map_err(doing("mapping the ids of a tmpfs"))
}

/// Has this process, which stays the host's root, touch files as the pod's root.
pub fn touch_files_as_root_of(mappings: &IdMappings) -> Result<(), StartError> {
    let root = |range: &IdRange| range.host_id_of(0).ok_or(io::ErrorKind::InvalidInput);
    let (uid, gid) = (
        root(&mappings.uids).stage("finding the pod's root")?,
        root(&mappings.gids).stage("finding the pod's root")?,
    );
    sys::set_file_system_ids(uid, gid).stage("touching files as the pod's root")?;
    // Another user than root has lost the capabilities that concern files.
    let ours = sys::capabilities().stage("reading capabilities")?;
    let all = CapabilitySets {
        effective: ours.permitted,
        ..ours
    };
    sys::set_capabilities(all).stage("keeping capabilities")
}

/// Enters the user namespace of a pod as its root. `namespace` is the namespace, or a process in it.
pub fn enter(namespace: BorrowedFd<'_>) -> Result<(), StartError> {
    sys::setns(namespace, libc::CLONE_NEWUSER).stage("entering the pod's user namespace")?;
    sys::set_groups(&[]).stage("leaving the host's groups")?;
    sys::set_gid(0).stage("becoming the pod's root")?;
    sys::set_uid(0).stage("becoming the pod's root")?;
    // Changing the user made the process dumpable or not as the host is configured.
    sys::set_not_dumpable().stage("hiding from the pod")
}
