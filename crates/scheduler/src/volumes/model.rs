//! The kinds of storage, as far as the scheduler reads them.

use std::collections::BTreeMap;

use api::{LabelSelector, ObjectMeta};
use client::WithMetadata;
use serde::Deserialize;

use crate::pod::{NodeSelector, Requirement};
use crate::quantity;
use crate::resources::{ResourceList, ResourceRequests};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: ObjectMeta,
    pub spec: ClaimSpec,
    pub status: Phase,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    pub volume_name: String,
    pub storage_class_name: Option<String>,
    pub access_modes: Vec<String>,
    pub resources: ResourceRequests,
    pub volume_mode: Option<String>,
    pub selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Phase {
    pub phase: String,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: ObjectMeta,
    pub spec: VolumeSpec,
    pub status: Phase,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    pub capacity: ResourceList,
    pub access_modes: Vec<String>,
    pub storage_class_name: String,
    pub volume_mode: Option<String>,
    pub claim_ref: Option<ClaimRef>,
    pub node_affinity: Option<VolumeNodeAffinity>,
    pub csi: Option<Csi>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    pub required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Csi {
    pub driver: String,
    pub volume_handle: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageClass {
    pub metadata: ObjectMeta,
    pub provisioner: String,
    pub volume_binding_mode: Option<String>,
    pub allowed_topologies: Vec<Topology>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Topology {
    pub match_label_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    pub metadata: ObjectMeta,
    pub spec: CsiNodeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    pub drivers: Vec<CsiNodeDriver>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    pub name: String,
    pub allocatable: Allocatable,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Allocatable {
    /// How many volumes the driver can attach; without it there is no limit.
    pub count: Option<usize>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    pub metadata: ObjectMeta,
    pub spec: CsiDriverSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiDriverSpec {
    /// The driver tells where there is how much room, in [`Capacity`] objects.
    pub storage_capacity: bool,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Capacity {
    pub metadata: ObjectMeta,
    pub storage_class_name: String,
    pub node_topology: Option<LabelSelector>,
    pub capacity: Option<String>,
    pub maximum_volume_size: Option<String>,
}

impl Claim {
    /// Whether the claim has its volume for good.
    pub fn is_bound(&self) -> bool {
        !self.spec.volume_name.is_empty() && self.metadata.annotations.contains_key(BIND_COMPLETED)
    }

    pub fn class_name(&self) -> &str {
        self.spec.storage_class_name.as_deref().unwrap_or_default()
    }

    pub fn requested_bytes(&self) -> i64 {
        let requests = &self.spec.resources.requests;
        requests.get("storage").map_or(0, |text| quantity::units(text))
    }

    pub fn selected_node(&self) -> Option<&str> {
        self.metadata.annotations.get(SELECTED_NODE).map(String::as_str)
    }

    pub fn is_exclusive(&self) -> bool {
        self.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }
}

impl Volume {
    pub fn bytes(&self) -> i64 {
        let capacity = self.spec.capacity.get("storage");
        capacity.map_or(0, |text| quantity::units(text))
    }

    /// Whether the volume can be reached from a node.
    pub fn reaches(&self, labels: &BTreeMap<String, String>, node: &str) -> bool {
        let affinity = self.spec.node_affinity.as_ref();
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        required.is_none_or(|required| required.matches(labels, node))
    }

    /// Whether the volume was made for, or given to, the claim.
    pub fn is_reserved_for(&self, claim: &Claim) -> bool {
        let metadata = &claim.metadata;
        self.spec.claim_ref.as_ref().is_some_and(|given| {
            given.namespace == metadata.namespace
                && given.name == metadata.name
                && (given.uid.is_empty() || given.uid == metadata.uid)
        })
    }
}

impl StorageClass {
    pub fn waits_for_pod(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }

    pub fn can_provision(&self) -> bool {
        !self.provisioner.is_empty() && self.provisioner != "kubernetes.io/no-provisioner"
    }

    /// Whether volumes may be made for a node; a class without topologies makes them anywhere.
    pub fn allows(&self, labels: &BTreeMap<String, String>) -> bool {
        let within = |one: &Requirement| labels.get(&one.key).is_some_and(|value| one.values.contains(value));
        let mut topologies = self.allowed_topologies.iter();
        self.allowed_topologies.is_empty()
            || topologies.any(|topology| topology.match_label_expressions.iter().all(within))
    }
}

macro_rules! with_metadata {
    ($($kind:ty),+) => {
        $(impl WithMetadata for $kind {
            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
        })+
    };
}

with_metadata!(Claim, Volume, StorageClass, CsiNode, CsiDriver, Capacity);
