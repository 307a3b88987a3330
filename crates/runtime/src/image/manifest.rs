//! Manifests and indexes: how an image says what it is made of. Field names are those of the OCI image format, which
//! Docker's older one shares.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
pub struct Index {
    pub manifests: Vec<Descriptor>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    pub platform: Option<Platform>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
}

#[derive(Deserialize)]
pub struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

impl Descriptor {
    /// Whether it describes an index, and not a manifest.
    pub fn is_index(&self) -> bool {
        is_index(&self.media_type)
    }

    /// Whether it is for this machine, as far as it says.
    pub fn is_ours(&self) -> bool {
        let ours = |platform: &Platform| platform.os == "linux" && platform.architecture == architecture();
        self.platform.as_ref().is_none_or(ours)
    }
}

pub fn is_index(media_type: &str) -> bool {
    media_type.contains("image.index") || media_type.contains("manifest.list")
}

/// The name Go, and so every image, has for this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub fn platform() -> String {
    format!("linux/{}", architecture())
}
