//! What the kubelet reads of a pod: a narrow projection of the object, decoded once per change and never written back.

mod container;
pub mod quantity;
pub mod resources;
mod security;
mod state;
mod volume;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::moment::Moment;
pub use container::*;
pub use security::*;
pub use state::*;
pub use volume::*;

/// Which source a pod came from: `file`, `http` or `api`.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// What a static pod's manifest is known by.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// In an object of the API that stands for a static pod: the hash of what it shows.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Pods of this priority and above keep the node or the cluster alive.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// The grace period of a pod that names none.
const DEFAULT_GRACE_SECONDS: i64 = 30;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Pod {
    pub metadata: Metadata,
    pub spec: PodSpec,
    pub status: KnownStatus,
    /// Who this node has the pod from. Never read from an object: whoever writes one could claim anything.
    #[serde(skip)]
    pub origin: Origin,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    #[default]
    Api,
    /// A file or a URL that the node was told to read. Its object in the API, if there is one, has another UID.
    Static { mirror_uid: Option<String> },
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub creation_timestamp: Option<Moment>,
    pub deletion_timestamp: Option<Moment>,
    pub deletion_grace_period_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub ephemeral_containers: Vec<Container>,
    pub volumes: Vec<Volume>,
    pub restart_policy: RestartPolicy,
    pub termination_grace_period_seconds: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    pub dns_policy: DnsPolicy,
    pub dns_config: Option<DnsConfig>,
    pub node_name: String,
    pub service_account_name: String,
    pub host_network: bool,
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    pub host_users: Option<bool>,
    pub share_process_namespace: bool,
    pub security_context: PodSecurityContext,
    pub image_pull_secrets: Vec<LocalReference>,
    pub hostname: String,
    pub hostname_override: Option<String>,
    pub subdomain: String,
    #[serde(rename = "setHostnameAsFQDN")]
    pub set_hostname_as_fqdn: bool,
    pub host_aliases: Vec<HostAlias>,
    pub readiness_gates: Vec<ReadinessGate>,
    pub enable_service_links: Option<bool>,
    pub runtime_class_name: Option<String>,
    pub overhead: BTreeMap<String, String>,
    pub priority: i32,
    pub priority_class_name: String,
    pub os: Option<PodOs>,
    pub tolerations: Vec<Toleration>,
    /// Requests and limits of the pod as a whole.
    pub resources: Resources,
}

/// The operating system that a pod is made for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodOs {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum DnsPolicy {
    #[default]
    ClusterFirst,
    ClusterFirstWithHostNet,
    Default,
    None,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DnsConfig {
    pub nameservers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<DnsOption>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DnsOption {
    pub name: String,
    pub value: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LocalReference {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostAlias {
    pub ip: String,
    pub hostnames: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReadinessGate {
    pub condition_type: String,
}

/// The parts of a pod's status that outlive what the runtime remembers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KnownStatus {
    pub phase: String,
    pub reason: String,
    pub message: String,
    pub start_time: Option<Moment>,
    pub qos_class: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<KnownIp>,
    pub conditions: Vec<KnownCondition>,
    /// What the pod has as a whole.
    pub resources: Option<Resources>,
    pub init_container_statuses: Vec<KnownContainer>,
    pub container_statuses: Vec<KnownContainer>,
    pub ephemeral_container_statuses: Vec<KnownContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KnownIp {
    pub ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KnownCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Moment>,
}

/// A container's status as last written; raw, because only the runtime's silence makes us repeat it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KnownContainer {
    pub name: String,
    pub restart_count: u32,
    pub ready: bool,
    pub started: Option<bool>,
    pub image: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub state: KnownState,
    pub last_state: KnownState,
    /// What it runs with.
    pub resources: Option<Resources>,
    pub user: Option<ContainerUser>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KnownState {
    pub running: Option<serde_json::Value>,
    pub terminated: Option<Terminated>,
}

impl Toleration {
    /// Whether it covers the taint of nodes that are short of memory, which has no value.
    pub fn tolerates_memory_pressure(&self) -> bool {
        let all = self.key.is_empty() && self.operator == "Exists";
        let named = self.key == "node.kubernetes.io/memory-pressure";
        let fits = named && (self.operator == "Exists" || self.value.is_empty());
        (all || fits) && matches!(self.effect.as_str(), "" | "NoSchedule")
    }
}

impl KnownContainer {
    /// It has been started at least once, whatever became of it.
    pub fn has_run(&self) -> bool {
        !self.container_id.is_empty() || self.last_state.terminated.is_some()
    }
}

/// Which of a pod's lists a container stands in, and what that means for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Runs to completion before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: started in order, then kept running beside the others.
    Sidecar,
    App,
    /// Added to a running pod for debugging; started once, and of no influence on the pod.
    Ephemeral,
}

impl Pod {
    /// Decodes an object. Some writers leave `null` where there is nothing; a server that passes that on must not cost
    /// a pod its life.
    pub fn decode(bytes: &[u8]) -> Result<Pod, serde_json::Error> {
        serde_json::from_slice(bytes).or_else(|_| {
            let mut value: serde_json::Value = serde_json::from_slice(bytes)?;
            remove_nulls(&mut value);
            serde_json::from_value(value)
        })
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// The object's name in marks.
    pub fn mark_name(&self) -> String {
        format!("pods/{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Whether every name of it that becomes a part of a path is one.
    pub fn has_plain_names(&self) -> bool {
        let Metadata {
            name, namespace, uid, ..
        } = &self.metadata;
        let containers = self.all_containers().map(|(_, container)| &container.name);
        let volumes = self.spec.volumes.iter().map(|volume| &volume.name);
        let mut names = [name, namespace, uid].into_iter().chain(containers).chain(volumes);
        names.all(|name| !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..")
    }

    /// How upstream names a pod in messages: `name_namespace(uid)`.
    pub fn full_name(&self) -> String {
        format!(
            "{}_{}({})",
            self.metadata.name, self.metadata.namespace, self.metadata.uid
        )
    }

    /// All containers with what they are, in the order in which they start.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let init = self.spec.init_containers.iter().map(|c| (c.init_kind(), c));
        let app = self.spec.containers.iter().map(|c| (ContainerKind::App, c));
        let ephemeral = self.spec.ephemeral_containers.iter();
        init.chain(app).chain(ephemeral.map(|c| (ContainerKind::Ephemeral, c)))
    }

    pub fn container(&self, name: &str) -> Option<(ContainerKind, &Container)> {
        self.all_containers().find(|(_, container)| container.name == name)
    }

    pub fn known_container(&self, name: &str) -> Option<&KnownContainer> {
        let status = &self.status;
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        all.chain(&status.ephemeral_container_statuses)
            .find(|known| known.name == name)
    }

    /// The node or the cluster does not work without it, or it is the node's own.
    pub fn is_critical(&self) -> bool {
        self.spec.priority >= CRITICAL_PRIORITY || self.is_static()
    }

    pub fn is_static(&self) -> bool {
        self.origin != Origin::Api
    }

    /// The object only shows a static pod and is not to be run.
    pub fn is_mirror(&self) -> bool {
        self.origin == Origin::Api && self.metadata.annotations.contains_key(MIRROR)
    }

    /// The UID of the object in the API that shows how the pod is; none if there is no such object.
    pub fn api_uid(&self) -> Option<&str> {
        match &self.origin {
            Origin::Api => Some(&self.metadata.uid),
            Origin::Static { mirror_uid } => mirror_uid.as_deref(),
        }
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The phase in the API is final: what has ended never runs again.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// How long its containers may take to end, as the deletion or else the pod says.
    pub fn grace(&self) -> Duration {
        let seconds = self
            .metadata
            .deletion_grace_period_seconds
            .or(self.spec.termination_grace_period_seconds)
            .unwrap_or(DEFAULT_GRACE_SECONDS);
        Duration::from_secs(seconds.max(0) as u64)
    }

    /// What a restart policy means for this container: sidecars always restart, ephemeral containers never do.
    pub fn restart_policy_of(&self, kind: ContainerKind, container: &Container) -> RestartPolicy {
        match kind {
            ContainerKind::Sidecar => RestartPolicy::Always,
            ContainerKind::Ephemeral => RestartPolicy::Never,
            // An init container that has succeeded is done, whatever the pod's policy.
            ContainerKind::Init => match container.restart_policy.unwrap_or(self.spec.restart_policy) {
                RestartPolicy::Never => RestartPolicy::Never,
                _ => RestartPolicy::OnFailure,
            },
            ContainerKind::App => container.restart_policy.unwrap_or(self.spec.restart_policy),
        }
    }

    /// Whether some container's end can have all of them started again.
    pub fn restarts_all(&self) -> bool {
        let mut containers = self.all_containers();
        containers.any(|(_, container)| {
            let mut rules = container.restart_policy_rules.iter();
            rules.any(|rule| rule.action == RestartAction::RestartAllContainers)
        })
    }

    /// The name the pod has for itself, as `hostname` prints it; the kernel allows 63 bytes.
    pub fn hostname(&self) -> String {
        let name = match (&self.spec.hostname_override, self.spec.hostname.as_str()) {
            (Some(name), _) => name,
            (None, "") => &self.metadata.name,
            (None, hostname) => hostname,
        };
        let cut = name.len().min(63);
        name[..cut].trim_end_matches(['-', '.']).to_owned()
    }
}

fn remove_nulls(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_lead_nowhere_else() {
        let check = |uid: &str, container: &str, volume: &str| {
            let text = format!(
                "{{metadata: {{name: a, namespace: b, uid: '{uid}'}}, spec: {{containers: [{{name: '{container}'}}], volumes: \
                 [{{name: '{volume}'}}]}}}}"
            );
            serde_saphyr::from_str::<Pod>(&text).unwrap().has_plain_names()
        };
        assert!(check("0b5-1", "c", "v"));
        for bad in ["..", ".", "", "../../etc", "a/b", "/etc"] {
            assert!(
                !check(bad, "c", "v") && !check("u", bad, "v") && !check("u", "c", bad),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_null_is_as_good_as_nothing() {
        let pod = r#"{"metadata": {"name": "a", "labels": null}, "spec": {"volumes": null, "hostname": null}}"#;
        assert_eq!(Pod::decode(pod.as_bytes()).unwrap().metadata.name, "a");
        assert!(Pod::decode(b"{").is_err());
    }
}
