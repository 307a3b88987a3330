//! What controllers read of objects: projections that several controllers share. None is ever written back.

use api::{Fields, LabelSelector, ObjectMeta, Value};
use client::when::Moment;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;

/// Says where a projection keeps its metadata, which makes it an object that can be cached.
macro_rules! with_metadata {
    ($($projection:ty),* $(,)?) => {
        $(impl client::WithMetadata for $projection {
            fn metadata(&self) -> &api::ObjectMeta {
                &self.metadata
            }
        })*
    };
}
pub(crate) use with_metadata;

with_metadata!(Metadata, Namespace, Node, Pod, ReplicaSet);

/// An object of which only the metadata matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub metadata: ObjectMeta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
    pub spec: NamespaceSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceSpec {
    pub finalizers: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: ObjectMeta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSpec {
    pub unschedulable: bool,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    /// As they are written, so that those of others stay as they are.
    pub taints: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    pub addresses: Vec<NodeAddress>,
    pub conditions: Vec<Value>,
    pub daemon_endpoints: DaemonEndpoints,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonEndpoints {
    pub kubelet_endpoint: DaemonEndpoint,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DaemonEndpoint {
    #[serde(rename = "Port")]
    pub port: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: String,
    pub hostname: String,
    pub subdomain: String,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    pub tolerations: Vec<Toleration>,
    /// As it is written: few pods have it, and few readers look into it.
    pub affinity: Option<Box<RawValue>>,
    /// Only those that are claims, or make one.
    #[serde(deserialize_with = "claiming_volumes")]
    volumes: Vec<ClaimingVolume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimingVolume {
    name: String,
    persistent_volume_claim: Option<ClaimSource>,
    ephemeral: Option<EphemeralVolume>,
}

/// The template of the claim that is made for a pod's volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EphemeralVolume {
    /// As it is written, to be copied.
    volume_claim_template: Option<Box<RawValue>>,
}

impl EphemeralVolume {
    pub fn claim_template(&self) -> Value {
        let text = self.volume_claim_template.as_deref().map_or("null", RawValue::get);
        // The text was part of an object that parsed.
        serde_json::from_str(text).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSource {
    claim_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
    /// For how long a NoExecute taint is tolerated; forever when it is not set.
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub ports: Vec<ContainerPort>,
    /// `Always` on an init container makes it a sidecar, whose ports count.
    pub restart_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    pub name: String,
    pub container_port: u16,
    pub protocol: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: String,
    pub conditions: Vec<PodCondition>,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodIp {
    pub ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub last_transition_time: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    pub restart_count: i64,
    pub state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    pub exit_code: i64,
    pub finished_at: String,
}

/// A ReplicaSet, or a ReplicationController, whose plain map of labels is read as a selector too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    pub metadata: ObjectMeta,
    pub spec: ReplicaSetSpec,
    pub status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReplicaSetSpec {
    pub replicas: Option<i64>,
    pub min_ready_seconds: i64,
    #[serde(deserialize_with = "selector_or_labels")]
    pub selector: Option<LabelSelector>,
    pub template: Option<Box<RawValue>>,
}

impl Pod {
    /// Neither finished nor being deleted: a pod that counts towards its replicas.
    pub fn is_active(&self) -> bool {
        !self.is_finished() && !self.metadata.is_deleting()
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub fn is_ready(&self) -> bool {
        self.ready_condition().is_some_and(|ready| ready.status == "True")
    }

    /// Since when the pod has been ready, or not.
    pub fn ready_since(&self) -> Option<Moment> {
        let since = self.ready_condition()?.last_transition_time.as_deref();
        since.and_then(Moment::parse)
    }

    /// Ready for at least `min_ready_seconds`.
    pub fn is_available(&self, min_ready_seconds: i64, now: Moment) -> bool {
        if !self.is_ready() {
            return false;
        }
        let since = self.ready_since();
        min_ready_seconds == 0
            || since.is_some_and(|since| now.since(since).as_secs() >= min_ready_seconds.unsigned_abs())
    }

    /// The pod's address of a family, `IPv4` or `IPv6`.
    pub fn address(&self, family: &str) -> Option<String> {
        let all = self.status.pod_ips.iter().map(|address| address.ip.as_str());
        let wants_v6 = family == "IPv6";
        let mut all = all
            .chain([self.status.pod_ip.as_str()])
            .filter(|address| !address.is_empty());
        all.find(|address| address.contains(':') == wants_v6).map(str::to_owned)
    }

    /// The names of the claims that the pod uses; those of ephemeral volumes are made of its own.
    pub fn claims(&self) -> impl Iterator<Item = String> {
        self.spec
            .volumes
            .iter()
            .map(|volume| match &volume.persistent_volume_claim {
                Some(source) => source.claim_name.clone(),
                None => self.ephemeral_claim_name(&volume.name),
            })
    }

    /// The ephemeral volumes that have claims, by name.
    pub fn ephemeral_volumes(&self) -> impl Iterator<Item = (&str, &EphemeralVolume)> {
        let volumes = self.spec.volumes.iter();
        volumes.filter_map(|volume| Some((volume.name.as_str(), volume.ephemeral.as_ref()?)))
    }

    pub fn ephemeral_claim_name(&self, volume: &str) -> String {
        format!("{}-{volume}", self.metadata.name)
    }

    pub fn restarts(&self) -> i64 {
        self.status
            .container_statuses
            .iter()
            .map(|status| status.restart_count)
            .sum()
    }

    fn ready_condition(&self) -> Option<&PodCondition> {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Ready")
    }
}

impl Toleration {
    pub fn tolerates(&self, taint: &Value) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.text("effect");
        let key = self.key.is_empty() || self.key == taint.text("key");
        let value = match self.operator.as_str() {
            "Exists" => true,
            _ => !self.key.is_empty() && self.value == taint.text("value"),
        };
        effect && key && value
    }
}

impl ReplicaSet {
    /// What the API defaults to when it is not set.
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    pub fn template(&self) -> Value {
        let text = self.spec.template.as_deref().map_or("null", RawValue::get);
        // The text was part of an object that parsed.
        serde_json::from_str(text).unwrap_or_default()
    }
}

fn claiming_volumes<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<ClaimingVolume>, D::Error> {
    let mut volumes: Vec<ClaimingVolume> = Vec::deserialize(source)?;
    volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    volumes.shrink_to_fit();
    Ok(volumes)
}

/// A selector, or a plain map of labels: their values are objects and lists in one, texts in the other.
fn selector_or_labels<'de, D: Deserializer<'de>>(source: D) -> Result<Option<LabelSelector>, D::Error> {
    let value = Value::deserialize(source)?;
    let is_labels = value.as_object().is_some_and(|map| map.values().any(Value::is_string));
    let value = if is_labels {
        json!({"matchLabels": value})
    } else {
        value
    };
    serde_json::from_value(value).map_err(D::Error::custom)
}

/// When the object was created, for sorting.
pub fn created(metadata: &ObjectMeta) -> Moment {
    let text = metadata.creation_timestamp.as_deref();
    text.and_then(Moment::parse).unwrap_or_default()
}
