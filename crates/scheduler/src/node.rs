//! What the scheduler reads of a node.

use std::collections::BTreeMap;

use api::ObjectMeta;
use client::WithMetadata;
use serde::Deserialize;

use crate::pod::Toleration;
use crate::resources::ResourceList;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: ObjectMeta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    pub allocatable: ResourceList,
    pub images: Vec<Image>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    pub names: Vec<String>,
    pub size_bytes: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// A namespace, for its labels.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}

impl WithMetadata for Namespace {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl WithMetadata for Node {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Node {
    /// Whether the scheduler cannot tell two states apart: kubelets report often without anything having changed.
    pub fn looks_like(&self, other: &Node) -> bool {
        self.spec == other.spec && self.status == other.status && self.metadata.labels == other.metadata.labels
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.metadata.labels
    }
}

impl Taint {
    pub fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        tolerations.iter().any(|toleration| {
            let effect = toleration.effect.is_empty() || toleration.effect == self.effect;
            let key = toleration.key.is_empty() || toleration.key == self.key;
            let value = match toleration.operator.as_str() {
                "Exists" => true,
                // An empty key is allowed with Exists alone.
                _ => !toleration.key.is_empty() && toleration.value == self.value,
            };
            effect && key && value
        })
    }
}
