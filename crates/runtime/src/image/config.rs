//! An image's configuration: what its author wants of a container. Field names are those of the OCI image format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageConfig {
    #[serde(default)]
    pub config: RunConfig,
    #[serde(default)]
    pub rootfs: RootFs,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RunConfig {
    #[serde(deserialize_with = "null_as_default")]
    pub user: String,
    #[serde(deserialize_with = "null_as_default")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub working_dir: String,
    #[serde(deserialize_with = "null_as_default")]
    pub stop_signal: String,
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RootFs {
    /// The digests of the layers' uncompressed tars, lowest first.
    #[serde(default)]
    pub diff_ids: Vec<String>,
}

/// Go writes null for what is empty.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
