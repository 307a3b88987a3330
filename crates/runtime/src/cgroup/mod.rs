//! Control groups, of version 1 and 2 alike: where they are, making, limiting, entering, counting and removing them.
//!
//! `limits` decides which files get which values; everything here is the acting on it. A path is always relative to
//! the root of a hierarchy, and the same in all of them.

mod devices;
mod limits;
mod usage;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::spec::Limits;
pub use devices::{Access, DefaultProgram, DeviceKind, DeviceRule, with_given};
pub use usage::Usage;

/// How often to try to remove a cgroup whose processes have only just been killed, a millisecond apart.
const REMOVE_ATTEMPTS: u32 = 50;
/// How often to look for processes that were forked while the others were being killed.
const KILL_ROUNDS: u32 = 10;

/// The hierarchies of version 1 that limit or count what a pod may ask, and that a container sees.
const SHOWN: &[&str] = &[
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "hugetlb",
    "memory",
    "name=systemd",
    "pids",
];

/// The other controllers of version 1. Containers are in a cgroup of each all the same: in one where they were not, a
/// container that may mount would see the hierarchy's root, whose files make the kernel run programs on the host.
const HIDDEN: &[&str] = &[
    "devices",
    "freezer",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "rdma",
];

/// The controllers of version 2 that are handed down to containers where the kernel has them.
const DELEGATED: &[&str] = &["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// Where this host keeps its control groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// Version 2: one hierarchy for everything.
    Unified { mount: PathBuf },
    /// Version 1, possibly beside an empty version 2.
    Legacy { hierarchies: Vec<Hierarchy> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hierarchy {
    /// Such as `cpu` and `cpuacct`, which are often mounted together, or `name=systemd`.
    pub controllers: Vec<String>,
    pub mount: PathBuf,
}

impl Hierarchy {
    /// Whether a container sees its cgroup in this hierarchy.
    pub fn is_shown(&self) -> bool {
        self.controllers
            .iter()
            .any(|controller| SHOWN.contains(&controller.as_str()))
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|c| c == controller)
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::Legacy {
            hierarchies: Vec::new(),
        }
    }
}

impl Layout {
    /// Reads the mounts of this process's mount namespace.
    pub fn detect() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/self/mountinfo")?))
    }

    fn parse(mountinfo: &str) -> Self {
        let mut hierarchies = Vec::<Hierarchy>::new();
        let mut unified = None;
        for line in mountinfo.lines() {
            let Some((place, kind)) = line.split_once(" - ") else {
                continue;
            };
            let Some(mount) = place.split(' ').nth(4).map(PathBuf::from) else {
                continue;
            };
            let mut kind = kind.split(' ');
            match kind.next() {
                Some("cgroup2") => unified = unified.or(Some(mount)),
                Some("cgroup") => {
                    let options = kind.nth(1).unwrap_or_default().split(',');
                    let is_controller = |o: &&str| SHOWN.contains(o) || HIDDEN.contains(o) || o.starts_with("name=");
                    let controllers: Vec<_> = options.filter(is_controller).map(str::to_owned).collect();
                    if !controllers.is_empty() && !hierarchies.iter().any(|h| h.controllers == controllers) {
                        hierarchies.push(Hierarchy { controllers, mount });
                    }
                }
                _ => {}
            }
        }
        match unified {
            Some(mount) if hierarchies.is_empty() => Self::Unified { mount },
            _ => Self::Legacy { hierarchies },
        }
    }

    pub fn is_unified(&self) -> bool {
        matches!(self, Self::Unified { .. })
    }

    fn roots(&self) -> Vec<&Path> {
        match self {
            Self::Unified { mount } => vec![mount],
            Self::Legacy { hierarchies } => hierarchies.iter().map(|h| h.mount.as_path()).collect(),
        }
    }

    /// The directory of a cgroup in the hierarchy of a controller.
    fn dir(&self, controller: &str, path: &Path) -> Option<PathBuf> {
        match self {
            Self::Unified { mount } => Some(join(mount, path)),
            Self::Legacy { hierarchies } => hierarchies
                .iter()
                .find(|h| h.has(controller))
                .map(|h| join(&h.mount, path)),
        }
    }

    /// Makes a cgroup and its parents, and sets its limits.
    pub fn create(&self, path: &Path, limits: &Limits) -> io::Result<()> {
        match self {
            Self::Unified { mount } => create_unified(mount, path)?,
            Self::Legacy { hierarchies } => {
                for hierarchy in hierarchies {
                    create_legacy(hierarchy, path)?;
                }
            }
        }
        self.limit(path, limits)
    }

    /// Changes the limits of an existing cgroup.
    pub fn limit(&self, path: &Path, limits: &Limits) -> io::Result<()> {
        if let (Self::Legacy { .. }, Some(file)) = (self, limits.unified.keys().next()) {
            let why = format!("{file} is a file of cgroup v2, and this host has v1");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let writes = if self.is_unified() {
            limits::unified(limits)
        } else {
            limits::legacy(limits)
        };
        // Memory may not be more than memory with swap, at no moment: raising both takes the other order.
        let refused = writes.iter().filter_map(|write| match self.set(path, write) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Some(Ok(write)),
            Err(error) => Some(Err(error)),
            Ok(()) => None,
        });
        refused
            .collect::<io::Result<Vec<_>>>()?
            .into_iter()
            .try_for_each(|write| self.set(path, write))
    }

    fn set(&self, path: &Path, write: &limits::Write) -> io::Result<()> {
        let Some(dir) = self.dir(write.controller, path) else {
            return Ok(());
        };
        match fs::write(dir.join(&write.file), &write.value) {
            Err(error) if write.optional && error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                let what = format!("setting {} of cgroup {} to {}", write.file, path.display(), write.value);
                Err(io::Error::new(error.kind(), format!("{what}: {error}")))
            }
            Ok(()) => Ok(()),
        }
    }

    /// The descriptor with which a process is born into a cgroup. Version 1 has no such thing: see [`Layout::enter`].
    pub fn open_for_clone(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Unified { mount } => Ok(Some(fs::File::open(join(mount, path))?.into())),
            Self::Legacy { .. } => Ok(None),
        }
    }

    /// Moves this single-threaded process into a cgroup of version 1.
    ///
    /// It writes to `tasks`, not to `cgroup.procs`: moving one thread, itself, needs no lock on every fork and exit
    /// of the machine, which would take a grace period of five to ten milliseconds to acquire.
    pub fn enter(&self, path: &Path) -> io::Result<()> {
        let Self::Legacy { hierarchies } = self else {
            return Ok(());
        };
        for hierarchy in hierarchies {
            let mut dir = join(&hierarchy.mount, path);
            if hierarchy.has("devices") {
                dir.push(devices::INNER);
            }
            fs::write(dir.join("tasks"), "0")?;
        }
        Ok(())
    }

    /// The processes in a cgroup and all below it.
    pub fn processes(&self, path: &Path) -> Vec<i32> {
        let mut found = Vec::new();
        for root in self.roots() {
            collect_processes(&join(root, path), &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Kills every process in a cgroup and below it.
    pub fn kill(&self, path: &Path) {
        if let Self::Unified { mount } = self
            && fs::write(join(mount, path).join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        for _ in 0..KILL_ROUNDS {
            let processes = self.processes(path);
            if processes.is_empty() {
                return;
            }
            for pid in processes {
                if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                    // It may have ended by itself.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }

    /// Removes a cgroup and all below it. What is gone already is removed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.roots()
            .into_iter()
            .try_for_each(|root| remove_tree(&join(root, path)))
    }

    /// How many processes the kernel has killed in a cgroup for want of memory.
    pub fn oom_kills(&self, path: &Path) -> u64 {
        let file = if self.is_unified() {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = self
            .dir("memory", path)
            .and_then(|dir| fs::read_to_string(dir.join(file)).ok());
        text.and_then(|text| usage::keyed(&text, "oom_kill")).unwrap_or(0)
    }
}

fn join(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn create_unified(mount: &Path, path: &Path) -> io::Result<()> {
    let mut dir = mount.to_owned();
    for part in path.strip_prefix("/").unwrap_or(path) {
        delegate(&dir);
        dir.push(part);
        make_dir(&dir)?;
    }
    Ok(())
}

/// Enables the controllers for a cgroup's children. A controller that cannot be is reported by the limit that needs it.
fn delegate(dir: &Path) {
    let enabled = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    let available = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_whitespace().filter(|c| DELEGATED.contains(c)) {
        if !enabled.split_whitespace().any(|e| e == controller) {
            let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
}

fn create_legacy(hierarchy: &Hierarchy, path: &Path) -> io::Result<()> {
    let mut dir = hierarchy.mount.clone();
    let is_cpuset = hierarchy.has("cpuset");
    for part in path.strip_prefix("/").unwrap_or(path) {
        let parent = dir.clone();
        dir.push(part);
        if make_dir(&dir)? && is_cpuset {
            inherit_cpuset(&parent, &dir)?;
        }
    }
    Ok(())
}

/// A new cpuset of version 1 is empty, and nothing can enter it before it has processors and memory.
fn inherit_cpuset(parent: &Path, child: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        fs::write(child.join(file), fs::read_to_string(parent.join(file))?.trim())?;
    }
    Ok(())
}

/// Whether the directory had to be made.
fn make_dir(dir: &Path) -> io::Result<bool> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("making cgroup {}: {error}", dir.display()),
        )),
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn collect_processes(dir: &Path, found: &mut Vec<i32>) {
    let listed = fs::read_to_string(dir.join(OsStr::new("cgroup.procs"))).unwrap_or_default();
    found.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()));
    children(dir).iter().for_each(|child| collect_processes(child, found));
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    for attempt in 1.. {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if attempt == REMOVE_ATTEMPTS => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("removing cgroup {}: {error}", dir.display()),
                ));
            }
            // Either there are cgroups below, or killed processes that have not quite gone.
            Err(_) if attempt == 1 => {
                for child in children(dir) {
                    remove_tree(&child)?;
                }
            }
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(mountinfo: &str, expect: Expect) {
        let text = match Layout::parse(mountinfo) {
            Layout::Unified { mount } => format!("unified {}\n", mount.display()),
            Layout::Legacy { hierarchies } => hierarchies
                .iter()
                .map(|h| format!("{} {}\n", h.controllers.join(","), h.mount.display()))
                .collect(),
        };
        expect.assert_eq(&text);
    }

    #[test]
    fn a_host_with_version_2_alone_is_unified() {
        check(
            "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
            expect![[r#"
                unified /sys/fs/cgroup
            "#]],
        );
    }

    #[test]
    fn a_mixed_host_is_legacy_and_every_hierarchy_of_it_is_used() {
        check(
            "30 1 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             31 1 0:23 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             32 1 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             33 1 0:25 / /sys/fs/cgroup/net_cls rw - cgroup cgroup rw,net_cls\n\
             34 1 0:26 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd",
            expect![[r#"
                cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct
                memory /sys/fs/cgroup/memory
                net_cls /sys/fs/cgroup/net_cls
                name=systemd /sys/fs/cgroup/systemd
            "#]],
        );
    }
}
