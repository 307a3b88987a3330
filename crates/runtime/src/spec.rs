//! What a supervisor is told to create: plain data, decided by `plan`, carried out by `supervisor`.
//!
//! The types travel as JSON between two processes that may be of different versions of Karve: fields are only added,
//! with a default.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::seccomp::Profile;

/// The namespaces of a pod and what is set in them once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub id: String,
    /// Set in the pod's own UTS namespace; a pod in the host's keeps the host's name.
    pub hostname: Option<String>,
    /// Whether the pod has a network namespace of its own, or the host's.
    pub own_network: bool,
    pub own_ipc: bool,
    /// Whether the containers share one process namespace, held by the pause process.
    pub shared_pid: bool,
    /// By path below `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
    /// The size of the `/dev/shm` that the containers share.
    pub shm_bytes: u64,
    /// Files that the containers share, by name: kept in memory, because they end with the pod.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The user namespace the pod runs in; none for the host's.
    #[serde(default)]
    pub user_namespace: Option<IdMappings>,
}

/// Which users and groups of the host those of a user namespace are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMappings {
    pub uids: IdRange,
    pub gids: IdRange,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// The first id as the pod sees it.
    pub container_id: u32,
    /// The first id as the host sees it.
    pub host_id: u32,
    pub length: u32,
}

impl IdRange {
    /// The host's id for one of the pod's; none for an id that the pod does not have.
    pub fn host_id_of(&self, id: u32) -> Option<u32> {
        let offset = id
            .checked_sub(self.container_id)
            .filter(|offset| *offset < self.length)?;
        self.host_id.checked_add(offset)
    }
}

/// One container, ready to be started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub id: String,
    pub root: Root,
    pub process: Process,
    pub pid: PidNamespace,
    pub mounts: Vec<Mount>,
    /// Files of the pod that no volume takes the place of.
    #[serde(default)]
    pub pod_files: Vec<PodFile>,
    pub devices: Vec<Device>,
    /// Paths made unreadable, such as `/proc/kcore`.
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    /// All devices, writable `/sys` and the host's cgroup namespace.
    pub privileged: bool,
    pub cgroup: Cgroup,
    /// Where the CRI log goes; without one the output is only seen by those attached.
    pub log_path: Option<PathBuf>,
    /// The bytes at which somebody rotates the log.
    #[serde(default)]
    pub log_max_bytes: Option<u64>,
    /// Where the supervisor records how the container ended.
    pub exit_path: PathBuf,
    /// Keep a standard input open for those who attach.
    pub stdin: bool,
    /// Close the standard input when the first who attached leaves.
    pub stdin_once: bool,
}

/// An overlay of image layers below a directory of the container's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Root {
    pub layers_dir: PathBuf,
    /// Names in `layers_dir`, topmost first.
    pub layers: Vec<String>,
    /// Holds `upper` and `work`.
    pub dir: PathBuf,
    pub readonly: bool,
}

/// A process in a container: its first, or one added by exec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub args: Vec<String>,
    /// As `NAME=value`; values need not be UTF-8 in Linux, but are in Kubernetes.
    pub env: Vec<String>,
    pub cwd: String,
    pub user: User,
    pub capabilities: Capabilities,
    pub no_new_privileges: bool,
    pub seccomp: Seccomp,
    /// The AppArmor profile that the program runs under; none leaves it as the supervisor is.
    #[serde(default)]
    pub apparmor: Option<String>,
    /// None leaves the supervisor's own.
    pub oom_score_adj: Option<i32>,
    pub tty: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// The home directory, for `HOME` where the environment has none.
    #[serde(default)]
    pub home: String,
}

/// Capability sets as the kernel's bit masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Bounding, permitted and effective.
    pub held: u64,
    /// Kept across exec by a user other than root.
    pub ambient: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Seccomp {
    #[default]
    Unconfined,
    RuntimeDefault,
    /// A profile of the node's, by its contents: the file may be another's by the time of an exec.
    Localhost(Box<Profile>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidNamespace {
    /// The container's own.
    #[default]
    Private,
    /// The pod's, held by its pause process.
    Pod,
    Host,
    /// That of another container of the pod.
    Target(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub readonly: bool,
    /// Read-only also for what is mounted below the source.
    #[serde(default)]
    pub recursive_readonly: bool,
    pub propagation: Propagation,
    /// The layers of an image, the topmost first, which are mounted instead of `source`; `source` is then the directory
    /// of all layers.
    #[serde(default)]
    pub layers: Vec<String>,
    /// What is shown of the image, relative to its root.
    #[serde(default)]
    pub sub_path: PathBuf,
    /// Show the files' owners as the ids of the pod's user namespace.
    #[serde(default)]
    pub id_mapped: bool,
}

/// One of [`SandboxSpec::files`], in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFile {
    pub name: String,
    pub target: PathBuf,
    pub readonly: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    #[default]
    Private,
    /// Later mounts of the host appear in the container.
    HostToContainer,
    /// And the container's in the host.
    Bidirectional,
}

/// A device node of the host, given to the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub source: PathBuf,
    pub target: PathBuf,
    /// What may be done with it, as letters: `r`ead, `w`rite, `m`ake nodes.
    #[serde(default = "all_access")]
    pub access: String,
}

fn all_access() -> String {
    "rwm".to_owned()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Relative to the root of each hierarchy. Empty for no cgroup of its own.
    pub path: PathBuf,
    pub limits: Limits,
}

/// Resource limits; None leaves what is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub cpu_shares: Option<u64>,
    /// Microseconds of each period, -1 for no limit.
    pub cpu_quota_us: Option<i64>,
    pub cpu_period_us: Option<u64>,
    /// -1 for no limit.
    pub memory_bytes: Option<i64>,
    /// Memory and swap together, -1 for no limit.
    pub memory_swap_bytes: Option<i64>,
    pub pids: Option<i64>,
    pub cpuset_cpus: Option<String>,
    pub cpuset_mems: Option<String>,
    /// By page size, such as `2MB`.
    #[serde(default)]
    pub hugepages: BTreeMap<String, u64>,
    /// Files of cgroup v2 written as they are.
    #[serde(default)]
    pub unified: BTreeMap<String, String>,
}

/// How a container ended, as its supervisor records it on disk and reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, or 128 plus the signal's number.
    pub code: i32,
    pub oom_killed: bool,
    /// Zero for a container whose program was never executed.
    pub started_at_ns: i64,
    pub finished_at_ns: i64,
    /// Why the program could not be executed.
    #[serde(default)]
    pub failure: String,
}
