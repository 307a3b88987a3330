//! What the scheduler reads of a pod.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use api::{LabelSelector, ObjectMeta, Value};
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
    /// The node on which others make room for it.
    pub nominated_node: String,
    pub started: Option<Moment>,
    /// It is leaving because a scheduler made room for another pod.
    pub is_preempted: bool,
    pub demand: Demand,
    /// What it asks of the pods around it; most ask nothing.
    pub placement: Option<Box<Placement>>,
    /// The persistent volume claims it uses.
    pub claims: Vec<PodClaim>,
    /// Disks that it names itself.
    pub disks: Vec<Disk>,
    /// What the pod needs that this scheduler does not know how to provide.
    pub unsupported: Option<&'static str>,
    /// Pods with the same class ask the same of nodes and share work.
    pub class: Class,
}

/// A claim that a pod uses, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    pub name: String,
    /// Made for this pod alone, under a name made of the pod's and the volume's.
    pub is_ephemeral: bool,
}

/// A disk that pods on one node may have to compete for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub key: String,
    /// Used so that others may use it in the same way.
    pub is_shared: bool,
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

/// What a pod asks of the pods around it.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    pub affinity: PodAffinity,
    pub anti_affinity: PodAffinity,
    pub spread: Vec<SpreadConstraint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Vec<PodAffinityTerm>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodAffinityTerm {
    /// Without it no pod is meant.
    pub label_selector: Option<LabelSelector>,
    pub topology_key: String,
    /// Without these and `namespace_selector` the pod's own namespace is meant.
    pub namespaces: Vec<String>,
    pub namespace_selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeightedPodAffinityTerm {
    pub weight: i64,
    pub pod_affinity_term: PodAffinityTerm,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpreadConstraint {
    pub max_skew: i64,
    pub topology_key: String,
    pub when_unsatisfiable: String,
    pub label_selector: Option<LabelSelector>,
    pub min_domains: Option<usize>,
    /// `Ignore` counts nodes that the pod's node affinity excludes.
    pub node_affinity_policy: String,
    /// `Honor` leaves out nodes with taints that the pod does not tolerate.
    pub node_taints_policy: String,
    pub match_label_keys: Vec<String>,
}

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

    /// What events about the pod refer to.
    pub fn reference(&self) -> client::ObjectReference {
        client::ObjectReference::new(&api::kinds::pod::POD, &self.metadata)
    }

    /// What stands for one of its claims in [`crate::volumes::ByKey`].
    pub fn claim_key(&self, claim: &str) -> String {
        format!("{}/{claim}", self.metadata.namespace)
    }

    pub fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// Orders pods by importance, the most important first: by priority, then by how long they have been running.
    /// One that has not started yet is the youngest.
    pub fn importance(&self, other: &Pod) -> Ordering {
        let young = |pod: &Pod| (pod.started.is_none(), pod.started);
        let priority = other.priority.cmp(&self.priority);
        priority.then_with(|| young(self).cmp(&young(other)))
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
    topology_spread_constraints: Vec<SpreadConstraint>,
    volumes: Vec<WireVolume>,
    resource_claims: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireVolume {
    name: String,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<Value>,
    gce_persistent_disk: Option<WireDisk>,
    aws_elastic_block_store: Option<WireDisk>,
    iscsi: Option<WireDisk>,
    rbd: Option<WireDisk>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireClaim {
    claim_name: String,
}

/// The sources of disks that are told apart by these fields.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireDisk {
    pd_name: String,
    #[serde(rename = "volumeID")]
    volume_id: String,
    iqn: String,
    monitors: Vec<String>,
    pool: String,
    image: String,
    read_only: bool,
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
    pod_affinity: PodAffinity,
    pod_anti_affinity: PodAffinity,
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
#[serde(default, rename_all = "camelCase")]
struct WireStatus {
    conditions: Vec<Value>,
    nominated_node_name: String,
    start_time: Option<String>,
}

impl From<Wire> for Pod {
    fn from(wire: Wire) -> Pod {
        let (metadata, mut spec) = (wire.metadata, wire.spec);
        let condition = wire.status.conditions.iter().find(|one| one["type"] == "PodScheduled");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_preempted = wire.status.conditions.iter().any(|one| {
            one["type"] == "DisruptionTarget" && one["status"] == "True" && one["reason"] == "PreemptionByScheduler"
        });
        let created = metadata.creation_timestamp.as_deref().and_then(Moment::parse);
        let mut pod = Pod {
            created: created.unwrap_or_default(),
            condition: condition.map(|one| (text(&one["status"]), text(&one["reason"]), text(&one["message"]))),
            nominated_node: wire.status.nominated_node_name,
            started: wire.status.start_time.as_deref().and_then(Moment::parse),
            is_preempted: is_preempted && metadata.is_deleting(),
            priority: spec.priority.unwrap_or(0),
            preemption_policy: spec.preemption_policy.clone().unwrap_or_default(),
            gates: spec.scheduling_gates.iter().map(|gate| gate.name.clone()).collect(),
            node_name: spec.node_name.clone(),
            scheduler_name: spec.scheduler_name.clone(),
            claims: spec
                .volumes
                .iter()
                .filter_map(|volume| volume.claim(&metadata.name))
                .collect(),
            disks: spec.volumes.iter().flat_map(WireVolume::disks).collect(),
            placement: spec.take_placement(),
            unsupported: spec.unsupported(),
            demand: Demand::from(spec),
            class: Class::default(),
            metadata,
        };
        pod.class = Class::of(&pod.demand);
        pod
    }
}

impl WireSpec {
    fn take_placement(&mut self) -> Option<Box<Placement>> {
        let placement = Placement {
            affinity: std::mem::take(&mut self.affinity.pod_affinity),
            anti_affinity: std::mem::take(&mut self.affinity.pod_anti_affinity),
            spread: std::mem::take(&mut self.topology_spread_constraints),
        };
        let asks = |affinity: &PodAffinity| !affinity.required.is_empty() || !affinity.preferred.is_empty();
        let any = asks(&placement.affinity) || asks(&placement.anti_affinity) || !placement.spread.is_empty();
        any.then(|| Box::new(placement))
    }

    fn unsupported(&self) -> Option<&'static str> {
        (!self.resource_claims.is_empty()).then_some("resource claims cannot be scheduled yet")
    }
}

impl WireVolume {
    fn claim(&self, pod: &str) -> Option<PodClaim> {
        if let Some(claim) = &self.persistent_volume_claim {
            return Some(PodClaim {
                name: claim.claim_name.clone(),
                is_ephemeral: false,
            });
        }
        self.ephemeral.is_some().then(|| PodClaim {
            name: format!("{pod}-{}", self.name),
            is_ephemeral: true,
        })
    }

    fn disks(&self) -> Vec<Disk> {
        let mut disks = Vec::new();
        let mut add = |key: String, is_shared: bool| disks.push(Disk { key, is_shared });
        if let Some(disk) = &self.gce_persistent_disk {
            add(format!("gce/{}", disk.pd_name), disk.read_only);
        }
        if let Some(disk) = &self.aws_elastic_block_store {
            add(format!("aws/{}", disk.volume_id), false);
        }
        if let Some(disk) = &self.iscsi {
            add(format!("iscsi/{}", disk.iqn), disk.read_only);
        }
        // An image is the same if any of its monitors is.
        if let Some(disk) = &self.rbd {
            let pool = if disk.pool.is_empty() { "rbd" } else { &disk.pool };
            let monitors = disk.monitors.iter();
            monitors.for_each(|monitor| add(format!("rbd/{monitor}/{pool}/{}", disk.image), disk.read_only));
        }
        disks
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
