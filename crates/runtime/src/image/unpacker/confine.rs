//! What an unpacker gives up before it reads anything: the host's files, the network, all privileges but those over
//! the files it makes, most system calls, and any use of memory or time without end.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::Mode;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::super::limits::{MAX_LAYER_BYTES, MAX_LAYERS, UNPACK_CPU_SECONDS, UNPACKER_MEMORY_BYTES};
use super::filter;
use crate::supervisor::mounts;
use crate::sys::{self, CapabilitySets};
use crate::{capability, within};

/// What it takes to make files of any owner and kind. Marking directories for overlayfs would take far more, so Karve
/// does that.
const KEPT: &[&str] = &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"];

/// The highest capability a mask can hold.
const LAST_CAPABILITY: u32 = 63;

const NAMESPACES: libc::c_int =
    libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;

/// The first to be killed when the machine runs out of memory.
const OOM_SCORE: &str = "1000";

pub fn confine() -> io::Result<()> {
    sys::set_name(c"karve-unpack")?;
    sys::end_with_parent()?;
    sys::set_not_dumpable()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Only makes it more likely that the right process is killed.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let memory_now = address_space()?;
    sys::unshare(NAMESPACES)?;
    leave_file_systems()?;
    limit_resources(memory_now)?;
    drop_privileges()
}

/// Enters a root that has nothing in it. The directories that Karve hands over are mounts of their own, which lead
/// nowhere else.
fn leave_file_systems() -> io::Result<()> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let nothing = mounts::new("tmpfs", &[("size", Some("4k")), ("nr_inodes", Some("1"))], attributes)?;
    let root = within::open(rustix::fs::CWD, "/".as_ref())?;
    mounts::attach(&nothing, root.as_fd())?;
    rustix::process::fchdir(&nothing)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

fn limit_resources(memory_now: u64) -> io::Result<()> {
    let limits = [
        (Resource::As, memory_now + UNPACKER_MEMORY_BYTES),
        (Resource::Cpu, UNPACK_CPU_SECONDS),
        (Resource::Fsize, MAX_LAYER_BYTES),
        // The layers below, and the few that are open at a time.
        (Resource::Nofile, MAX_LAYERS as u64 + 64),
        (Resource::Core, 0),
    ];
    for (resource, limit) in limits {
        let limit = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

/// The bytes of this process's address space.
fn address_space() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let size = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other("/proc/self/status tells no VmSize"))
}

fn drop_privileges() -> io::Result<()> {
    let ours = sys::capabilities()?.permitted;
    let mut kept = 0;
    for name in KEPT {
        kept |= capability::mask(name).map_err(io::Error::other)?;
    }
    kept &= ours;
    sys::set_groups(&[])?;
    for capability in (0..=LAST_CAPABILITY).filter(|capability| ours & (1 << capability) != 0) {
        sys::drop_from_bounding_set(capability)?;
    }
    sys::set_capabilities(CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: 0,
    })?;
    sys::set_no_new_privileges()?;
    filter::load()
}
