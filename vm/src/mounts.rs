//! What every machine has mounted.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How long a disk may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

/// Controllers that pods are limited by.
const CONTROLLERS: &str = "+cpu +cpuset +io +memory +pids";
const CGROUPS: &str = "/sys/fs/cgroup";

/// The kernel's own file systems.
pub fn kernel(root: &str) -> Result<()> {
    for (kind, path) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        let path = format!("{root}{path}");
        fs::create_dir_all(&path)?;
        mount(Some(kind), &path, Some(kind), 0, None)?;
    }
    Ok(())
}

/// What an init system adds.
pub fn ordinary() -> Result<()> {
    let hidden = libc::MS_NOSUID | libc::MS_NODEV;
    for (kind, path, options) in [
        ("devpts", "/dev/pts", Some("gid=5,mode=620,ptmxmode=666")),
        ("tmpfs", "/dev/shm", None),
        ("tmpfs", "/run", Some("mode=755")),
        ("tmpfs", "/tmp", Some("mode=1777")),
        ("cgroup2", CGROUPS, None),
        ("securityfs", "/sys/kernel/security", None),
        ("bpf", "/sys/fs/bpf", None),
    ] {
        fs::create_dir_all(path).with_context(|| format!("cannot make {path}"))?;
        // Terminals are devices.
        let flags = if kind == "devpts" { libc::MS_NOSUID } else { hidden };
        mount(Some(kind), path, Some(kind), flags, options)?;
    }
    // As init systems leave it: mounts propagate.
    mount(None, "/", None, libc::MS_SHARED | libc::MS_REC, None)?;
    services()
}

/// A cgroup like that of a service, for the command.
fn services() -> Result<()> {
    let delegate = |dir: &str| {
        let file = format!("{dir}/cgroup.subtree_control");
        fs::write(&file, CONTROLLERS).with_context(|| format!("cannot write {file}"))
    };
    delegate(CGROUPS)?;
    let slice = format!("{CGROUPS}/system.slice");
    fs::create_dir_all(format!("{slice}/command.service"))?;
    delegate(&slice)
}

/// Where the command's process goes.
pub fn service_processes() -> String {
    format!("{CGROUPS}/system.slice/command.service/cgroup.procs")
}

pub fn mount(
    source: Option<&str>,
    target: &str,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: Option<&str>,
) -> Result<()> {
    let text = |text: Option<&str>| text.map(CString::new).transpose();
    let (source, place, named, options) = (text(source)?, CString::new(target)?, text(kind)?, text(options)?);
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: the texts live until the call returns.
    let result = unsafe {
        libc::mount(
            pointer(&source),
            place.as_ptr(),
            pointer(&named),
            flags,
            pointer(&options).cast(),
        )
    };
    let error = io::Error::last_os_error();
    match result {
        0 => Ok(()),
        // The kernel has mounted its devices itself.
        _ if error.raw_os_error() == Some(libc::EBUSY) && kind == Some("devtmpfs") => Ok(()),
        _ => Err(error).with_context(|| format!("cannot mount {target}")),
    }
}

pub fn wait_for(path: &Path) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !path.exists() {
        ensure!(Instant::now() < until, "{} did not appear", path.display());
        sleep(STEP);
    }
    Ok(())
}
