//! What the scheduler reads of a pod.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use api::{ObjectMeta, Value};
use bytes::Bytes;
use client::Object;
use client::when::Moment;
use serde::Deserialize;

use crate::resources::{ContainerResources, Requests, ResourceList, ResourceRequests};

/// A pod, decoded once when it arrives.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub created: Moment,
    /// Empty while the pod waits for a node.
    pub node_name: String,
    pub scheduler_name: String,
    pub priority: i32,
    pub preemption_policy: String,
    pub gates: Vec<String>,
    /// The PodScheduled condition as it is: status, reason, message.
    pub condition: Option<(String, String, String)>,
    pub demand: Demand,
    /// Pods with the same class ask the same of nodes and share work.
    pub class: Class,
}

/// What a pod asks of its node.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    pub requests: Requests,
    pub node_selector: BTreeMap<String, String>,
    pub node_affinity: NodeAffinity,
    pub tolerations: Vec<Toleration>,
    pub host_ports: Vec<HostPort>,
    pub images: Vec<String>,
}

/// A fingerprint of everything in a [`Demand`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class(u64, u64);

#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredTerm>,
}

/// One of the terms must match.
#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All requirements must match; a term without any matches nothing.
#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    pub match_expressions: Vec<Requirement>,
    pub match_fields: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default)]
pub struct Requirement {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default)]
pub struct PreferredTerm {
    pub weight: i64,
    pub preference: NodeSelectorTerm,
}

#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(default)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
}

/// A port of the node that the pod takes for itself. Address and protocol are never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub address: String,
    pub protocol: String,
    pub port: u16,
}

impl Pod {
    pub fn path(&self) -> String {
        format!("pods/{}/{}", self.metadata.namespace, self.metadata.name)
    }
}

impl Object for Pod {
    fn decode(object: &Bytes) -> Result<Pod, serde_json::Error> {
        Ok(Pod::from(serde_json::from_slice::<Wire>(object)?))
    }

    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// The pod as it is encoded.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: ObjectMeta,
    spec: WireSpec,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireSpec {
    node_name: String,
    scheduler_name: String,
    priority: Option<i32>,
    preemption_policy: Option<String>,
    scheduling_gates: Vec<Gate>,
    node_selector: BTreeMap<String, String>,
    affinity: WireAffinity,
    tolerations: Vec<Toleration>,
    containers: Vec<WireContainer>,
    init_containers: Vec<WireContainer>,
    overhead: ResourceList,
    resources: ResourceRequests,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Gate {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireAffinity {
    node_affinity: NodeAffinity,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireContainer {
    image: String,
    resources: ResourceRequests,
    restart_policy: String,
    ports: Vec<WirePort>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WirePort {
    host_port: u16,
    #[serde(rename = "hostIP")]
    host_ip: String,
    protocol: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    conditions: Vec<Value>,
}

impl From<Wire> for Pod {
    fn from(wire: Wire) -> Pod {
        let (metadata, spec) = (wire.metadata, wire.spec);
        let condition = wire.status.conditions.iter().find(|one| one["type"] == "PodScheduled");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let created = metadata.creation_timestamp.as_deref().and_then(Moment::parse);
        let mut pod = Pod {
            created: created.unwrap_or_default(),
            condition: condition.map(|one| (text(&one["status"]), text(&one["reason"]), text(&one["message"]))),
            priority: spec.priority.unwrap_or(0),
            preemption_policy: spec.preemption_policy.clone().unwrap_or_default(),
            gates: spec.scheduling_gates.iter().map(|gate| gate.name.clone()).collect(),
            node_name: spec.node_name.clone(),
            scheduler_name: spec.scheduler_name.clone(),
            demand: Demand::from(spec),
            class: Class::default(),
            metadata,
        };
        pod.class = Class::of(&pod.demand);
        pod
    }
}

impl From<WireSpec> for Demand {
    fn from(spec: WireSpec) -> Demand {
        let resources = |containers: &[WireContainer]| -> Vec<ContainerResources> {
            let containers = containers.iter().map(|container| ContainerResources {
                requests: container.resources.requests.clone(),
                is_sidecar: container.restart_policy == "Always",
            });
            containers.collect()
        };
        let requests = Requests::of(
            &resources(&spec.containers),
            &resources(&spec.init_containers),
            &spec.overhead,
            &spec.resources.requests,
        );
        let sidecars = spec
            .init_containers
            .iter()
            .filter(|container| container.restart_policy == "Always");
        let ports = spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|container| &container.ports);
        let host_ports = ports.filter(|port| port.host_port != 0).map(HostPort::from).collect();
        Demand {
            requests,
            node_selector: spec.node_selector,
            node_affinity: spec.affinity.node_affinity,
            tolerations: spec.tolerations,
            host_ports,
            images: spec.containers.into_iter().map(|container| container.image).collect(),
        }
    }
}

impl From<&WirePort> for HostPort {
    fn from(port: &WirePort) -> HostPort {
        let or = |text: &str, default: &str| {
            if text.is_empty() {
                default.to_owned()
            } else {
                text.to_owned()
            }
        };
        HostPort {
            address: or(&port.host_ip, "0.0.0.0"),
            protocol: or(&port.protocol, "TCP"),
            port: port.host_port,
        }
    }
}

impl Class {
    fn of(demand: &Demand) -> Class {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            demand.requests.hash(&mut hasher);
            demand.node_selector.hash(&mut hasher);
            demand.node_affinity.hash(&mut hasher);
            demand.tolerations.hash(&mut hasher);
            demand.host_ports.hash(&mut hasher);
            demand.images.hash(&mut hasher);
            hasher.finish()
        };
        Class(half(0), half(1))
    }
}
