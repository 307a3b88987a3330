//! Manifests and indexes: how an image says what it is made of. Field names are those of the OCI image format, which
//! Docker's older one shares.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::digest::Digest;

/// What a descriptor or a reference leads to.
#[derive(Debug)]
pub enum Document {
    Index(Index),
    Manifest(Manifest),
}

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it has both manifests and layers, so it means different things to different programs")]
    Ambiguous,
    #[error("it is neither an image's manifest nor an index of them")]
    Unknown,
    #[error("it is announced as {0:?}, but is something else")]
    Mislabelled(String),
}

#[derive(Debug)]
pub struct Index {
    pub manifests: Vec<Descriptor>,
}

#[derive(Debug)]
pub struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    /// The exact size of what is described.
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

impl Document {
    /// Reads a document. `announced` is the media type that the registry, or a descriptor, gives it; empty for none.
    pub fn read(bytes: &[u8], announced: &str) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields {
            #[serde(default)]
            media_type: String,
            manifests: Option<Vec<Descriptor>>,
            config: Option<Descriptor>,
            layers: Option<Vec<Descriptor>>,
        }
        let fields: Fields = serde_json::from_slice(bytes)?;
        let document = match (fields.manifests, fields.config, fields.layers) {
            (Some(manifests), None, None) => Self::Index(Index { manifests }),
            (None, Some(config), Some(layers)) => Self::Manifest(Manifest { config, layers }),
            (Some(_), ..) => return Err(DocumentError::Ambiguous),
            _ => return Err(DocumentError::Unknown),
        };
        for label in [announced, &fields.media_type] {
            if document.contradicts(label) {
                return Err(DocumentError::Mislabelled(label.to_owned()));
            }
        }
        Ok(document)
    }

    fn contradicts(&self, media_type: &str) -> bool {
        match self {
            Self::Index(_) => is_manifest(media_type),
            Self::Manifest(_) => is_index(media_type),
        }
    }
}

impl Descriptor {
    /// Whether it is for this machine, as far as it says.
    pub fn is_ours(&self) -> bool {
        let ours = |platform: &Platform| platform.os == "linux" && platform.architecture == architecture();
        self.platform.as_ref().is_none_or(ours)
    }
}

fn is_index(media_type: &str) -> bool {
    media_type.contains("image.index") || media_type.contains("manifest.list")
}

fn is_manifest(media_type: &str) -> bool {
    media_type.contains("image.manifest") || media_type.contains("distribution.manifest.v")
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

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

    fn check(announced: &str, text: &str, expected: &str) {
        let digest = format!("sha256:{}", "0".repeat(64));
        let text = text.replace("D", &format!(r#"{{"digest":"{digest}","size":1}}"#));
        let shown = match Document::read(text.as_bytes(), announced) {
            Ok(Document::Index(_)) => "index".to_owned(),
            Ok(Document::Manifest(_)) => "manifest".to_owned(),
            Err(DocumentError::Malformed(_)) => "malformed".to_owned(),
            Err(error) => error.to_string().chars().take(15).collect(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn a_document_is_what_it_holds_and_nothing_else() {
        check(INDEX, r#"{"manifests":[D]}"#, "index");
        check("", r#"{"config":D,"layers":[D,D]}"#, "manifest");
        check(MANIFEST, r#"{"config":D,"layers":[]}"#, "manifest");
        check(MANIFEST, r#"{"manifests":[D]}"#, "it is announced");
        check(INDEX, r#"{"config":D,"layers":[]}"#, "it is announced");
        let inside = format!(r#"{{"mediaType":"{INDEX}","config":D,"layers":[]}}"#);
        check("", &inside, "it is announced");
        check("", r#"{"manifests":[D],"config":D,"layers":[D]}"#, "it has both man");
        check("", r#"{"manifests":[D],"layers":[D]}"#, "it has both man");
        check("", r#"{"config":D}"#, "it is neither a");
        check("", "{}", "it is neither a");
        check("", r#"{"manifests":[D],"manifests":[]}"#, "malformed");
    }

    #[test]
    fn sizes_and_digests_are_required_and_depth_is_bounded() {
        check("", r#"{"manifests":[{"digest":"../../etc","size":1}]}"#, "malformed");
        let digest = format!("sha256:{}", "0".repeat(64));
        check(
            "",
            &format!(r#"{{"manifests":[{{"digest":"{digest}"}}]}}"#),
            "malformed",
        );
        check(
            "",
            &format!(r#"{{"manifests":[{{"digest":"{digest}","size":-1}}]}}"#),
            "malformed",
        );
        // What is not asked for is passed over without going down into it.
        let deep = |name: &str| format!(r#"{{"{name}":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(Document::read(deep("other").as_bytes(), "").is_err());
        assert!(Document::read(deep("manifests").as_bytes(), "").is_err());
    }
}
