//! Pulling images from registries by the OCI distribution protocol.
//!
//! `http` fetches, `auth` gets the tokens that registries ask for; this file finds the image for this machine and
//! brings its layers to disk, where `store` takes them over as it does those of an archive.

mod auth;
mod http;
mod mirror;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ::http::StatusCode;
use futures_util::{FutureExt, StreamExt, TryStreamExt};

pub use auth::Credentials;
use http::{Fetched, Http, HttpError};
pub use mirror::Mirror;

use super::archive::ArchivedImage;
use super::config::ImageConfig;
use super::digest;
use super::manifest::{Descriptor, Index, Manifest, is_index, platform};
use super::reference::Reference;

const MAX_MANIFEST_BYTES: u64 = 4 << 20;
const MAX_CONFIG_BYTES: u64 = 8 << 20;
const MAX_LAYER_BYTES: u64 = 64 << 30;
/// How many layers are fetched at a time.
const PARALLEL_LAYERS: usize = 3;
/// How many indexes lead to a manifest.
const MAX_INDEX_DEPTH: u32 = 4;

/// The formats we understand, newest first.
const MANIFEST_TYPES: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("failed to resolve reference \"{reference}\": {reference}: not found")]
    NotFound { reference: String },
    #[error("pull access denied, repository does not exist or may require authorization: {0}")]
    Denied(String),
    #[error("failed to do request: {0}")]
    Http(#[from] HttpError),
    #[error("unexpected status from GET request to {url}: {status}")]
    Status { url: String, status: StatusCode },
    #[error("no match for platform in manifest: {0} not found")]
    NoPlatform(String),
    #[error("{what} of \"{reference}\": {source}")]
    Malformed {
        what: &'static str,
        reference: String,
        source: serde_json::Error,
    },
    #[error("{what} has digest {actual}, not {expected}")]
    Corrupt {
        what: String,
        expected: String,
        actual: String,
    },
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A client of all registries.
pub struct Registries {
    http: Http,
    mirrors: Vec<Mirror>,
    no_credentials: Credentials,
}

/// One repository of one registry, as one pull sees it.
struct Repository<'a> {
    http: &'a Http,
    reference: &'a Reference,
    /// Such as `https://registry-1.docker.io/v2/library/busybox`.
    base: String,
    authorization: tokio::sync::Mutex<Option<String>>,
    credentials: &'a Credentials,
}

impl Registries {
    pub fn new(mirrors: Vec<Mirror>) -> Self {
        Self {
            http: Http::new(),
            mirrors,
            no_credentials: Credentials::default(),
        }
    }

    /// The first mirror that has the image, or the registry itself.
    async fn find<'a>(
        &'a self,
        reference: &'a Reference,
        credentials: &'a Credentials,
    ) -> Result<(Repository<'a>, String, Manifest), PullError> {
        let mut failure = None;
        for (base, own) in mirror::places(reference, &self.mirrors) {
            let repository = Repository {
                http: &self.http,
                reference,
                base,
                authorization: tokio::sync::Mutex::default(),
                credentials: if own { credentials } else { &self.no_credentials },
            };
            match repository.manifest().await {
                Ok((digest, manifest)) => return Ok((repository, digest, manifest)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| PullError::NotFound {
            reference: reference.to_string(),
        }))
    }

    /// Fetches an image. Layers go to files in `spool`, except those that `present` says are unpacked already: it
    /// is asked with the configuration, and answers their positions.
    pub async fn pull(
        &self,
        reference: &Reference,
        credentials: &Credentials,
        spool: &Path,
        present: impl FnOnce(&ImageConfig) -> BTreeSet<usize>,
    ) -> Result<ArchivedImage, PullError> {
        let (repository, manifest_digest, manifest) = self.find(reference, credentials).await?;
        let config_bytes = repository.blob(&manifest.config.digest, MAX_CONFIG_BYTES).await?;
        let config: ImageConfig = repository.parse("configuration", &config_bytes)?;
        let present = present(&config);
        let files: Vec<PathBuf> = (0..manifest.layers.len())
            .map(|index| spool.join(index.to_string()))
            .collect();
        let wanted = manifest
            .layers
            .iter()
            .zip(&files)
            .enumerate()
            .filter(|(index, _)| !present.contains(index));
        let fetches: Vec<_> = wanted
            .map(|(_, (layer, file))| repository.layer(layer, file).boxed())
            .collect();
        futures_util::stream::iter(fetches)
            .buffer_unordered(PARALLEL_LAYERS)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(ArchivedImage {
            names: vec![reference.key()],
            manifest_digest: Some(manifest_digest),
            id: manifest.config.digest.clone(),
            config_bytes,
            config,
            layers: files,
        })
    }
}

impl Repository<'_> {
    /// The manifest for this machine, and the digest of what the reference itself names.
    async fn manifest(&self) -> Result<(String, Manifest), PullError> {
        let mut wanted = self
            .reference
            .digest
            .clone()
            .or_else(|| self.reference.tag.clone())
            .unwrap_or_default();
        let mut first_digest = None;
        for _ in 0..=MAX_INDEX_DEPTH {
            let answer = self.get(&format!("manifests/{wanted}"), MANIFEST_TYPES).await?;
            let media_type = answer.header("content-type");
            let bytes = answer.bytes(MAX_MANIFEST_BYTES).await?;
            let actual = digest::of(&bytes);
            if wanted.starts_with("sha256:") && wanted != actual {
                return Err(PullError::Corrupt {
                    what: "the manifest".to_owned(),
                    expected: wanted,
                    actual,
                });
            }
            let first_digest = first_digest.get_or_insert(actual);
            if !is_index(&media_type) {
                return Ok((first_digest.clone(), self.parse("manifest", &bytes)?));
            }
            let index: Index = self.parse("index", &bytes)?;
            let ours = index
                .manifests
                .into_iter()
                .find(|inner| inner.platform.is_some() && inner.is_ours());
            wanted = ours.ok_or_else(|| PullError::NoPlatform(platform()))?.digest;
        }
        Err(PullError::NoPlatform(platform()))
    }

    async fn blob(&self, expected: &str, limit: u64) -> Result<Vec<u8>, PullError> {
        let bytes = self
            .get(&format!("blobs/{expected}"), "*/*")
            .await?
            .bytes(limit)
            .await?;
        self.check(expected, digest::of(&bytes))?;
        Ok(bytes)
    }

    async fn layer(&self, layer: &Descriptor, file: &Path) -> Result<(), PullError> {
        let answer = self.get(&format!("blobs/{}", layer.digest), "*/*").await?;
        let limit = if layer.size == 0 {
            MAX_LAYER_BYTES
        } else {
            layer.size.min(MAX_LAYER_BYTES)
        };
        self.check(&layer.digest, answer.save(file, limit).await?)
    }

    fn check(&self, expected: &str, actual: String) -> Result<(), PullError> {
        if expected == actual {
            return Ok(());
        }
        let what = format!("a blob of {}", self.reference);
        Err(PullError::Corrupt {
            what,
            expected: expected.to_owned(),
            actual,
        })
    }

    /// Asks for something of the repository, with a token if the registry wants one.
    async fn get(&self, path: &str, accept: &str) -> Result<Fetched, PullError> {
        let url = format!("{}/{path}", self.base);
        let known = self.authorization.lock().await.clone();
        let mut answer = self.http.get(&url, accept, known.as_deref()).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let challenge = answer.header("www-authenticate");
            let authorization = auth::answer(self.http, &challenge, self.credentials).await?;
            let Some(authorization) = authorization.filter(|new| Some(new) != known.as_ref()) else {
                return Err(PullError::Denied(self.reference.to_string()));
            };
            answer = self.http.get(&url, accept, Some(&authorization)).await?;
            *self.authorization.lock().await = Some(authorization);
        }
        match answer.status() {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND => Err(PullError::NotFound {
                reference: self.reference.to_string(),
            }),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(PullError::Denied(self.reference.to_string())),
            status => Err(PullError::Status { url, status }),
        }
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, what: &'static str, bytes: &[u8]) -> Result<T, PullError> {
        let reference = self.reference.to_string();
        serde_json::from_slice(bytes).map_err(|source| PullError::Malformed {
            what,
            reference,
            source,
        })
    }
}

/// Where a repository is by its name. Docker's registry has another name than its images; a registry on this machine has no
/// certificate.
fn base_url(reference: &Reference) -> String {
    let (domain, path) = reference.domain_and_path();
    let host = if domain == "docker.io" {
        "registry-1.docker.io"
    } else {
        domain
    };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let local = name == "localhost"
        || name
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
    format!("{}://{host}/v2/{path}", if local { "http" } else { "https" })
}

#[cfg(test)]
mod tests;
