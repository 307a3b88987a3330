//! The parts of claims and volumes that a node reads.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::affinity::{NodeLabels, NodeSelectorTerm};
use crate::pod::{HostPath, SecretReference};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: ClaimMetadata,
    pub spec: ClaimSpec,
    pub status: Phase,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimMetadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub deletion_timestamp: Option<String>,
    pub owner_references: Vec<api::OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    pub volume_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Phase {
    pub phase: String,
}

impl Claim {
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        owners.any(|owner| owner.controller && owner.uid == uid)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    pub metadata: VolumeMetadata,
    pub spec: VolumeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeMetadata {
    pub name: String,
    pub annotations: BTreeMap<String, String>,
}

/// What a volume is. Sources that the node cannot use are kept by name, to be refused by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    pub claim_ref: Option<ClaimRef>,
    pub access_modes: Vec<String>,
    pub volume_mode: VolumeMode,
    pub mount_options: Vec<String>,
    pub node_affinity: Option<NodeAffinity>,
    pub host_path: Option<HostPath>,
    pub local: Option<LocalSource>,
    pub csi: Option<CsiPersistentSource>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub uid: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum VolumeMode {
    #[default]
    Filesystem,
    Block,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LocalSource {
    pub path: String,
    pub fs_type: Option<String>,
}

/// A volume that a CSI driver mounts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiPersistentSource {
    pub driver: String,
    pub volume_handle: String,
    pub fs_type: String,
    pub volume_attributes: BTreeMap<String, String>,
    pub node_stage_secret_ref: Option<SecretReference>,
    pub node_publish_secret_ref: Option<SecretReference>,
    pub node_expand_secret_ref: Option<SecretReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    pub required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

impl PersistentVolume {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Only one pod of the cluster may use it.
    pub fn is_read_write_once_pod(&self) -> bool {
        self.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }

    /// Its directory is made and removed by its node's kubelet.
    pub fn is_provisioned(&self) -> bool {
        use api::local_volumes::{PROVISIONED_BY, PROVISIONER};
        let by = self.metadata.annotations.get(PROVISIONED_BY);
        by.is_some_and(|by| by == PROVISIONER) && self.spec.local.is_some()
    }

    pub fn has_node_affinity(&self) -> bool {
        self.required_nodes().is_some()
    }

    pub fn is_usable_on(&self, node: &NodeLabels) -> bool {
        self.required_nodes()
            .is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }

    fn required_nodes(&self) -> Option<&[NodeSelectorTerm]> {
        let required = self.spec.node_affinity.as_ref()?.required.as_ref()?;
        Some(&required.node_selector_terms)
    }
}
