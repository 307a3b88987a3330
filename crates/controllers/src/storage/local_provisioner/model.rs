//! What is read of claims, classes and volumes to provision.

use std::collections::BTreeMap;

use api::local_volumes::{self, NODE_LABEL, PROVISIONED_BY};
use api::{ObjectMeta, Value};
use serde::Deserialize;

use crate::model::with_metadata;

/// What StorageClasses name to have volumes made here.
pub const PROVISIONER: &str = "karve.dev/local";
/// Written by the volume binder: who is to make the claim's volume.
const WANTED_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Written by the scheduler: the node of the claim's first pod.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

with_metadata!(Claim, Class, Volume);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: ObjectMeta,
    pub spec: ClaimSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    pub volume_name: String,
    pub access_modes: Vec<String>,
    pub storage_class_name: String,
    pub volume_mode: String,
    pub volume_attributes_class_name: String,
    pub selector: Option<Value>,
    pub data_source: Option<Value>,
    pub data_source_ref: Option<Value>,
    pub resources: Requests,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requests {
    pub requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Class {
    pub metadata: ObjectMeta,
    pub provisioner: String,
    pub parameters: BTreeMap<String, String>,
    pub reclaim_policy: String,
    pub mount_options: Vec<String>,
    pub allowed_topologies: Vec<Topology>,
}

/// Nodes whose labels match all of the expressions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Topology {
    pub match_label_expressions: Vec<LabelExpression>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LabelExpression {
    pub key: String,
    pub values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: ObjectMeta,
    pub spec: VolumeSpec,
    pub status: VolumeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    pub persistent_volume_reclaim_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    pub phase: String,
}

impl Claim {
    /// Whether the binder has handed the claim to this provisioner and it has no volume yet.
    pub fn wants_volume(&self) -> bool {
        let annotations = &self.metadata.annotations;
        self.spec.volume_name.is_empty()
            && !self.metadata.is_deleting()
            && annotations
                .get(WANTED_PROVISIONER)
                .is_some_and(|name| name == PROVISIONER)
    }

    /// Empty until the scheduler has chosen.
    pub fn selected_node(&self) -> &str {
        let node = self.metadata.annotations.get(SELECTED_NODE);
        node.map_or("", String::as_str)
    }
}

impl Volume {
    /// Whether this provisioner made the volume.
    pub fn is_local(&self) -> bool {
        let by = self.metadata.annotations.get(PROVISIONED_BY);
        by.is_some_and(|by| by == local_volumes::PROVISIONER)
    }

    pub fn node(&self) -> &str {
        self.metadata.labels.get(NODE_LABEL).map_or("", String::as_str)
    }

    pub fn says(&self, annotation: &str) -> bool {
        let value = self.metadata.annotations.get(annotation);
        value.is_some_and(|value| value == "true")
    }
}
