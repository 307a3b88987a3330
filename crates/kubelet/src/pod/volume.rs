//! Volumes as a pod names them.

use serde::Deserialize;

use super::{FieldRef, PullPolicy, ResourceFieldRef};

/// A volume. The sources the kubelet mounts have a field each; any other is kept by name, to be refused by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    pub empty_dir: Option<EmptyDir>,
    pub host_path: Option<HostPath>,
    pub config_map: Option<ConfigMapSource>,
    pub secret: Option<SecretSource>,
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardSource>,
    pub projected: Option<Projected>,
    pub image: Option<ImageSource>,
    pub persistent_volume_claim: Option<ClaimSource>,
    pub ephemeral: Option<EphemeralSource>,
    pub csi: Option<CsiSource>,
    #[serde(flatten)]
    pub other: std::collections::BTreeMap<String, serde_json::Value>,
}

impl Volume {
    /// A volume without a source is an empty directory.
    pub fn has_no_source(&self) -> bool {
        let known = [
            self.empty_dir.is_some(),
            self.host_path.is_some(),
            self.config_map.is_some(),
            self.secret.is_some(),
            self.downward_api.is_some(),
            self.projected.is_some(),
            self.image.is_some(),
            self.persistent_volume_claim.is_some(),
            self.ephemeral.is_some(),
            self.csi.is_some(),
        ];
        !known.contains(&true) && self.other.is_empty()
    }
}

/// A claim of the pod's namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSource {
    pub claim_name: String,
    pub read_only: bool,
}

/// A claim that a controller makes for the pod, from a template that is none of the kubelet's business.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EphemeralSource {}

/// A volume that a CSI driver makes for the pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiSource {
    pub driver: String,
    pub read_only: bool,
    pub fs_type: String,
    pub volume_attributes: std::collections::BTreeMap<String, String>,
    /// In the pod's namespace.
    pub node_publish_secret_ref: Option<SecretReference>,
}

/// A Secret; one without a namespace is in that of whoever refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    pub name: String,
    pub namespace: String,
}

/// The files of an image, read only.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageSource {
    pub reference: String,
    pub pull_policy: PullPolicy,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EmptyDir {
    pub medium: String,
    pub size_limit: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostPath {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigMapSource {
    pub name: String,
    pub items: Vec<KeyToPath>,
    pub default_mode: Option<u32>,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretSource {
    /// In a projected volume the field is called `name`.
    #[serde(alias = "name")]
    pub secret_name: String,
    pub items: Vec<KeyToPath>,
    pub default_mode: Option<u32>,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DownwardSource {
    pub items: Vec<DownwardItem>,
    pub default_mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DownwardItem {
    pub path: String,
    pub field_ref: Option<FieldRef>,
    pub resource_field_ref: Option<ResourceFieldRef>,
    pub mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyToPath {
    pub key: String,
    pub path: String,
    pub mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Projected {
    pub sources: Vec<Projection>,
    pub default_mode: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Projection {
    pub config_map: Option<ConfigMapSource>,
    pub secret: Option<SecretSource>,
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardSource>,
    pub service_account_token: Option<TokenProjection>,
    #[serde(flatten)]
    pub other: std::collections::BTreeMap<String, serde_json::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TokenProjection {
    pub audience: String,
    pub expiration_seconds: Option<i64>,
    pub path: String,
}
