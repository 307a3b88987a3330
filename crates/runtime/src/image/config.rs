//! An image's configuration: what its author wants of a container. Field names are those of the OCI image format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::limits::MAX_LAYERS;

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
    pub diff_ids: Vec<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the image lists {layers} layers but {diff_ids} digests for them, or more than {MAX_LAYERS}")]
pub struct LayerCountError {
    layers: usize,
    diff_ids: usize,
}

impl ImageConfig {
    /// Checks that every layer of a manifest has a digest here, and that there are not too many.
    pub fn check_layer_count(&self, layers: usize) -> Result<(), LayerCountError> {
        let diff_ids = self.rootfs.diff_ids.len();
        match layers == diff_ids && layers <= MAX_LAYERS {
            true => Ok(()),
            false => Err(LayerCountError { layers, diff_ids }),
        }
    }
}

/// Go writes null for what is empty.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
