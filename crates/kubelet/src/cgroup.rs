//! Pods' cgroups: one per pod below one per quality of service, on cgroup v1 and v2.
//!
//! The runtime puts containers below a pod's cgroup; the kubelet makes it, limits it and removes it. Everything lies
//! below one root of its own, so that several nodes can share a machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::container::resources::{quota, shares};
use crate::pod::Pod;
use crate::pod::resources::{Compute, Qos, pod_compute, qos};

#[derive(Clone, Debug)]
pub struct Cgroups {
    /// The place of all pods, such as `/kubepods`, as a path within each hierarchy.
    root: String,
    hierarchies: Vec<Hierarchy>,
    /// The processes of a pod at most, if it is bounded.
    pod_pids: Option<u64>,
}

#[derive(Clone, Debug)]
struct Hierarchy {
    mount: PathBuf,
    /// The controllers of a v1 hierarchy; v2 has them all in one.
    controllers: Vec<String>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    V1,
    V2,
    /// A v2 hierarchy beside v1 has no controllers. Runtimes make cgroups in it all the same, so there is something to
    /// remove.
    Beside,
}

impl Cgroups {
    /// `root` is where this node's cgroups lie: `/` for a node that has the machine to itself.
    pub fn detect(root: &str, pod_pids: Option<u64>) -> Cgroups {
        // Whoever may mount chooses paths, which need not be text.
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        Cgroups {
            root: format!("{}/kubepods", root.trim_end_matches('/')),
            hierarchies: hierarchies(&String::from_utf8_lossy(&mounts)),
            pod_pids,
        }
    }

    /// Bounds the processes of all pods together. Blocks on the file system.
    pub fn limit_processes(&self, limit: u64) -> io::Result<()> {
        let Some(hierarchy) = self.hierarchies.iter().find(|hierarchy| hierarchy.has("pids")) else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "there is no cgroup controller for processes",
            ));
        };
        let path = hierarchy.make(&self.root)?;
        fs::write(path.join("pids.max"), limit.to_string())
    }

    /// Bounds what all pods together may use. Blocks on the file system.
    pub fn limit_all(&self, cpu_milli: u64, memory_bytes: u64) -> io::Result<()> {
        let cpu_milli = i64::try_from(cpu_milli).unwrap_or(i64::MAX);
        for hierarchy in self.hierarchies.iter().filter(|own| own.kind != Kind::Beside) {
            let path = hierarchy.make(&self.root)?;
            let (cpu, share, memory) = match hierarchy.kind {
                Kind::V2 => ("cpu.weight", weight(cpu_milli), "memory.max"),
                _ => ("cpu.shares", shares(cpu_milli).to_string(), "memory.limit_in_bytes"),
            };
            hierarchy.set(&path, "cpu", cpu, Some(share));
            hierarchy.set(&path, "memory", memory, Some(memory_bytes.to_string()));
        }
        Ok(())
    }

    /// Where a cgroup is, in the hierarchy that has the controller.
    pub fn path_of(&self, cgroup: &str, controller: &str) -> Option<PathBuf> {
        let hierarchy = self.hierarchies.iter().find(|hierarchy| hierarchy.has(controller))?;
        Some(hierarchy.path(cgroup))
    }

    /// How many processes a pod has, if that is known. Blocks on the file system.
    pub fn processes(&self, pod: &Pod) -> Option<u64> {
        let hierarchy = self.hierarchies.iter().find(|hierarchy| hierarchy.has("pids"))?;
        let current = hierarchy.path(&self.parent(pod)).join("pids.current");
        fs::read_to_string(current).ok()?.trim().parse().ok()
    }

    /// The pod's cgroup as the CRI's `cgroup_parent` names it.
    pub fn parent(&self, pod: &Pod) -> String {
        let uid = &pod.metadata.uid;
        match qos(pod) {
            Qos::Guaranteed => format!("{}/pod{uid}", self.root),
            Qos::Burstable => format!("{}/burstable/pod{uid}", self.root),
            Qos::BestEffort => format!("{}/besteffort/pod{uid}", self.root),
        }
    }

    /// Makes the pod's cgroup with its limits. Blocks on the file system.
    pub fn create(&self, pod: &Pod) -> io::Result<()> {
        self.limit(pod, pod_compute(pod))
    }

    /// Makes the pod's cgroup, if there is none, and gives it these limits. Blocks on the file system.
    pub fn limit(&self, pod: &Pod, compute: Compute) -> io::Result<()> {
        let parent = self.parent(pod);
        for hierarchy in self
            .hierarchies
            .iter()
            .filter(|hierarchy| hierarchy.kind != Kind::Beside)
        {
            let path = hierarchy.make(&parent)?;
            let memory = compute.memory_limit.map(|limit| limit.to_string());
            hierarchy.set(&path, "pids", "pids.max", self.pod_pids.map(|limit| limit.to_string()));
            if hierarchy.kind == Kind::V2 {
                let max = quota(compute.cpu_limit_milli).map(|quota| format!("{quota} 100000"));
                hierarchy.set(&path, "cpu", "cpu.weight", Some(weight(compute.cpu_request_milli)));
                hierarchy.set(&path, "cpu", "cpu.max", max);
                hierarchy.set(&path, "memory", "memory.max", memory);
                continue;
            }
            let quota = quota(compute.cpu_limit_milli).map(|quota| quota.to_string());
            hierarchy.set(
                &path,
                "cpu",
                "cpu.shares",
                Some(shares(compute.cpu_request_milli).to_string()),
            );
            hierarchy.set(&path, "cpu", "cpu.cfs_quota_us", quota);
            hierarchy.set(&path, "memory", "memory.limit_in_bytes", memory);
        }
        Ok(())
    }

    /// Removes the cgroups of a node whose pods are all gone; those of pods that are left stay, and it is an error.
    pub fn remove_all(&self) -> io::Result<()> {
        self.hierarchies.iter().try_for_each(|hierarchy| {
            let root = hierarchy.path(&self.root);
            for class in ["burstable", "besteffort"] {
                remove_empty(&root.join(class))?;
            }
            remove_empty(&root)
        })
    }

    /// Removes the pod's cgroup, whichever quality of service it was made for. Blocks on the file system.
    pub fn remove(&self, uid: &str) -> io::Result<()> {
        for hierarchy in &self.hierarchies {
            for class in ["", "/burstable", "/besteffort"] {
                remove_tree(&hierarchy.path(&format!("{}{class}/pod{uid}", self.root)))?;
            }
        }
        Ok(())
    }
}

/// Of the processes that the machine can have, as many as pods may have together. A tenth, and at least a thousand where
/// there are enough, is kept for the machine itself: to log in, and to end what went wild.
pub fn processes_for_pods(max: u64) -> u64 {
    let kept = (max / 10).max(1000).min(max / 2);
    max - kept
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        match self.kind {
            Kind::V1 => self.controllers.iter().any(|own| own == controller),
            Kind::V2 => true,
            Kind::Beside => false,
        }
    }

    fn path(&self, cgroup: &str) -> PathBuf {
        self.mount.join(cgroup.trim_start_matches('/'))
    }

    fn make(&self, cgroup: &str) -> io::Result<PathBuf> {
        let path = self.path(cgroup);
        if self.kind == Kind::V2 {
            self.delegate(cgroup);
        }
        fs::create_dir_all(&path)?;
        if self.controllers.iter().any(|controller| controller == "cpuset") {
            self.inherit_cpuset(cgroup);
        }
        Ok(path)
    }

    /// Hands the controllers down to every level above the pod.
    fn delegate(&self, cgroup: &str) {
        let available = fs::read_to_string(self.mount.join("cgroup.controllers")).unwrap_or_default();
        let wanted = available
            .split_whitespace()
            .filter(|name| ["cpu", "cpuset", "memory", "pids", "io", "hugetlb"].contains(name));
        let wanted: Vec<String> = wanted.map(|name| format!("+{name}")).collect();
        let mut level = self.mount.clone();
        for part in cgroup.trim_start_matches('/').split('/') {
            for controller in &wanted {
                // A controller that cannot be delegated is one the pod does without.
                let _ = fs::write(level.join("cgroup.subtree_control"), controller);
            }
            level.push(part);
            if fs::create_dir_all(&level).is_err() {
                return;
            }
        }
    }

    /// A new cpuset cgroup is empty on v1, and nothing can run in it until it is told what its parent has.
    fn inherit_cpuset(&self, cgroup: &str) {
        let mut level = self.mount.clone();
        for part in cgroup.trim_start_matches('/').split('/') {
            let above = level.clone();
            level.push(part);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let own = fs::read_to_string(level.join(file)).unwrap_or_default();
                if own.trim().is_empty() {
                    let inherited = fs::read_to_string(above.join(file)).unwrap_or_default();
                    let _ = fs::write(level.join(file), inherited.trim());
                }
            }
        }
    }

    /// Sets a limit where this hierarchy has the controller. A kernel that refuses leaves the pod to its containers'
    /// own limits.
    fn set(&self, path: &Path, controller: &str, file: &str, value: Option<String>) {
        let Some(value) = value else { return };
        if !self.has(controller) {
            return;
        }
        if let Err(error) = fs::write(path.join(file), &value) {
            tracing::debug!(%error, path = %path.display(), file, value, "a pod's cgroup could not be limited");
        }
    }
}

/// Removing a cgroup means removing its directories from the innermost out; its files go by themselves.
fn remove_tree(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    remove_empty(path)
}

fn remove_empty(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    let parse = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mount = before.split(' ').nth(4)?;
        let mut after = after.split(' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        let controllers: Vec<String> = options.split(',').map(str::to_owned).collect();
        match kind {
            "cgroup2" => Some(Hierarchy {
                mount: PathBuf::from(mount),
                controllers: Vec::new(),
                kind: Kind::V2,
            }),
            "cgroup" => Some(Hierarchy {
                mount: PathBuf::from(mount),
                controllers,
                kind: Kind::V1,
            }),
            _ => None,
        }
    };
    let mut found: Vec<Hierarchy> = mounts.lines().filter_map(parse).collect();
    if found.iter().any(|hierarchy| hierarchy.kind == Kind::V1) {
        let unified = found.iter_mut().filter(|hierarchy| hierarchy.kind == Kind::V2);
        unified.for_each(|hierarchy| hierarchy.kind = Kind::Beside);
    }
    found
}

/// Shares of v1, from 2 to 262144, as weights of v2, from 1 to 10000.
fn weight(cpu_milli: i64) -> String {
    (1 + (shares(cpu_milli) - 2) * 9999 / 262_142).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_read_from_the_mounts() {
        let v1 = "\
30 29 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
31 29 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 29 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
";
        let found = hierarchies(v1);
        let kinds: Vec<Kind> = found.iter().map(|hierarchy| hierarchy.kind).collect();
        assert_eq!(kinds, [Kind::Beside, Kind::V1, Kind::V1]);
        assert!(found[1].controllers.contains(&"cpu".to_owned()));
        let v2 = "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(hierarchies(v2)[0].kind, Kind::V2);
    }

    #[test]
    fn pods_lie_below_their_quality_of_service() {
        let cgroups = Cgroups {
            root: "/node1/kubepods".to_owned(),
            hierarchies: Vec::new(),
            pod_pids: None,
        };
        let pod: Pod = serde_saphyr::from_str("{metadata: {uid: u}, spec: {containers: [{name: a}]}}").unwrap();
        assert_eq!(cgroups.parent(&pod), "/node1/kubepods/besteffort/podu");
        assert_eq!(weight(1000), "39");
    }

    #[test]
    fn pods_never_get_all_processes() {
        assert_eq!(processes_for_pods(32_768), 29_492);
        assert_eq!(processes_for_pods(4_194_304), 3_774_874);
        assert_eq!(processes_for_pods(5000), 4000);
        assert_eq!(processes_for_pods(1000), 500);
    }
}
