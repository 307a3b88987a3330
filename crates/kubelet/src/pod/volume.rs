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
    #[serde(flatten)]
    pub other: std::collections::BTreeMap<String, serde_json::Value>,
}

impl Volume {
    /// Its files come from objects, and the kubelet keeps them up to date. Containers can only read them.
    pub fn is_written_by_kubelet(&self) -> bool {
        self.config_map.is_some() || self.may_be_secret()
    }

    /// Its files may hold passwords or tokens; they are kept in memory.
    pub fn may_be_secret(&self) -> bool {
        self.secret.is_some() || self.projected.is_some() || self.downward_api.is_some()
    }
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
