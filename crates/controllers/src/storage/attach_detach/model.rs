//! What is read to attach volumes.

use api::{ObjectMeta, Value};
use serde::Deserialize;

use crate::model::with_metadata;

with_metadata!(Attachment, Claim, CsiDriver, StorageNode, Volume);

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
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: ObjectMeta,
    pub spec: VolumeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    pub access_modes: Vec<String>,
    pub claim_ref: ClaimReference,
    pub csi: Option<CsiSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    pub uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiSource {
    pub driver: String,
    pub volume_handle: String,
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
    pub attach_required: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StorageNode {
    pub metadata: ObjectMeta,
    pub spec: StorageNodeSpec,
    pub status: StorageNodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StorageNodeSpec {
    pub taints: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageNodeStatus {
    pub conditions: Vec<Value>,
    pub volumes_in_use: Vec<String>,
    volumes_attached: Vec<AttachedVolume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AttachedVolume {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Attachment {
    pub metadata: ObjectMeta,
    pub spec: AttachmentSpec,
    pub status: AttachmentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentSpec {
    pub node_name: String,
    pub attacher: String,
    source: AttachmentSource,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AttachmentSource {
    persistent_volume_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AttachmentStatus {
    pub attached: bool,
}

impl Volume {
    pub fn is_bound_to(&self, claim: &ObjectMeta) -> bool {
        self.spec.claim_ref.uid == claim.uid
    }

    /// Whether no two nodes may have the volume at a time.
    pub fn is_for_one_node(&self) -> bool {
        let modes = &self.spec.access_modes;
        !modes
            .iter()
            .any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
    }
}

impl StorageNode {
    /// The names of the volumes that the kubelet is told are attached.
    pub fn attached(&self) -> Vec<&str> {
        let attached = self.status.volumes_attached.iter();
        attached.map(|volume| volume.name.as_str()).collect()
    }
}

impl Attachment {
    pub fn volume(&self) -> &str {
        &self.spec.source.persistent_volume_name
    }
}
