//! Pulling images from registries by the OCI distribution protocol.
//!
//! `http` fetches, `auth` gets the tokens that registries ask for; this file finds the image for this machine and
//! brings its layers to disk, where `store` takes them over as it does those of an archive.

mod auth;
mod http;
mod mirror;

use std::collections::BTreeSet;
use std::fs::File;

use ::http::StatusCode;
use futures_util::{FutureExt, StreamExt, TryStreamExt};

pub use auth::Credentials;
use http::{Fetched, Http, HttpError, Origin, Patience};
pub use mirror::Mirror;

use super::archive::{PackedImage, PackedLayer};
use super::config::{ImageConfig, LayerCountError};
use super::digest::Digest;
use super::limits::{MAX_CONFIG_BYTES, MAX_INDEX_DEPTH, MAX_LAYER_BYTES, MAX_MANIFEST_BYTES};
use super::manifest::{Descriptor, Document, DocumentError, Manifest, platform};
use super::reference::Reference;
use super::work::WorkDir;

/// How many layers are fetched at a time.
const PARALLEL_LAYERS: usize = 3;

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
    #[error("manifest of \"{reference}\": {source}")]
    Document { reference: String, source: DocumentError },
    #[error("{0}")]
    LayerCount(#[from] LayerCountError),
    #[error("{what} has digest {actual}, not {expected}")]
    Corrupt {
        what: String,
        expected: Digest,
        actual: Digest,
    },
    #[error("{what} has {actual} bytes, not {expected}")]
    WrongSize { what: String, expected: u64, actual: u64 },
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
    registry: Origin,
    authorization: tokio::sync::Mutex<Option<String>>,
    credentials: &'a Credentials,
}

/// An image that was found, whose layers are still at the registry.
pub struct FoundImage<'a> {
    repository: Repository<'a>,
    manifest_digest: Digest,
    manifest: Manifest,
    config_bytes: Vec<u8>,
    pub config: ImageConfig,
}

impl Registries {
    pub fn new(mirrors: Vec<Mirror>) -> Self {
        Self {
            http: Http::new(Patience::default()),
            mirrors,
            no_credentials: Credentials::default(),
        }
    }

    /// Finds an image: at the first mirror that has it, or at the registry itself.
    pub async fn find<'a>(
        &'a self,
        reference: &'a Reference,
        credentials: &'a Credentials,
    ) -> Result<FoundImage<'a>, PullError> {
        let (repository, manifest_digest, manifest) = self.find_manifest(reference, credentials).await?;
        let config_bytes = repository.config(&manifest.config).await?;
        let config: ImageConfig = repository.parse("configuration", &config_bytes)?;
        config.check_layer_count(manifest.layers.len())?;
        Ok(FoundImage {
            repository,
            manifest_digest,
            manifest,
            config_bytes,
            config,
        })
    }

    async fn find_manifest<'a>(
        &'a self,
        reference: &'a Reference,
        credentials: &'a Credentials,
    ) -> Result<(Repository<'a>, Digest, Manifest), PullError> {
        let mut failure = None;
        for (base, own) in mirror::places(reference, &self.mirrors) {
            let repository = Repository {
                http: &self.http,
                reference,
                registry: Origin::of_url(&base)?,
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
}

impl FoundImage<'_> {
    /// How much there is to fetch beside the layers that are here already.
    pub fn missing_bytes(&self, present: &BTreeSet<usize>) -> u64 {
        let missing = self.missing(present).map(|(_, layer)| layer.size);
        missing.fold(0, u64::saturating_add)
    }

    fn missing(&self, present: &BTreeSet<usize>) -> impl Iterator<Item = (usize, &Descriptor)> {
        let layers = self.manifest.layers.iter().enumerate();
        layers.filter(|(index, _)| !present.contains(index))
    }

    /// Fetches the layers that are not present to files in a directory, and holds them to what the manifest says.
    pub async fn fetch(self, work: &WorkDir, present: &BTreeSet<usize>) -> Result<PackedImage, PullError> {
        let fetches: Vec<_> = self
            .missing(present)
            .map(|(index, layer)| self.repository.layer(index, layer, work).boxed())
            .collect();
        let fetched: Vec<(usize, File)> = futures_util::stream::iter(fetches)
            .buffer_unordered(PARALLEL_LAYERS)
            .try_collect()
            .await?;
        let mut layers: Vec<Option<PackedLayer>> = self.manifest.layers.iter().map(|_| None).collect();
        for (index, file) in fetched {
            layers[index] = Some(PackedLayer { file, unverified: None });
        }
        Ok(PackedImage {
            names: vec![self.repository.reference.key()],
            manifest_digest: Some(self.manifest_digest),
            id: self.manifest.config.digest,
            config_bytes: self.config_bytes,
            config: self.config,
            layers,
        })
    }
}

impl Repository<'_> {
    /// The manifest for this machine, and the digest of what the reference itself names.
    async fn manifest(&self) -> Result<(Digest, Manifest), PullError> {
        let mut wanted = Wanted::from(self.reference);
        let mut first_digest = None;
        for _ in 0..=MAX_INDEX_DEPTH {
            let answer = self.get(&format!("manifests/{}", wanted.name), MANIFEST_TYPES).await?;
            let media_type = answer.header("content-type");
            let bytes = answer.bytes(MAX_MANIFEST_BYTES).await?;
            let actual = Digest::sha256(&bytes);
            wanted.check(&bytes, &actual)?;
            let first_digest = first_digest.get_or_insert(actual);
            let document = Document::read(&bytes, &media_type).map_err(|source| PullError::Document {
                reference: self.reference.to_string(),
                source,
            })?;
            let index = match document {
                Document::Manifest(manifest) => return Ok((first_digest.clone(), manifest)),
                Document::Index(index) => index,
            };
            let ours = index
                .manifests
                .into_iter()
                .find(|inner| inner.platform.is_some() && inner.is_ours());
            wanted = Wanted::from(&ours.ok_or_else(|| PullError::NoPlatform(platform()))?);
        }
        Err(PullError::NoPlatform(platform()))
    }

    async fn config(&self, config: &Descriptor) -> Result<Vec<u8>, PullError> {
        let answer = self.get(&format!("blobs/{}", config.digest), "*/*").await?;
        let bytes = answer.bytes(config.size.min(MAX_CONFIG_BYTES)).await?;
        self.check(config, &Digest::sha256(&bytes), bytes.len() as u64)?;
        Ok(bytes)
    }

    async fn layer(&self, index: usize, layer: &Descriptor, work: &WorkDir) -> Result<(usize, File), PullError> {
        let answer = self.get(&format!("blobs/{}", layer.digest), "*/*").await?;
        let file = work.create(&format!("blob-{index}"))?;
        let (digest, size) = answer.save(file.try_clone()?, layer.size.min(MAX_LAYER_BYTES)).await?;
        self.check(layer, &digest, size)?;
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(std::io::Error::from)?;
        Ok((index, file))
    }

    /// Holds a blob to its descriptor.
    fn check(&self, blob: &Descriptor, digest: &Digest, size: u64) -> Result<(), PullError> {
        let what = || format!("a blob of {}", self.reference);
        hold_to(what, (&blob.digest, blob.size), (digest, size))
    }

    /// Asks for something of the repository, with a token if the registry wants one.
    async fn get(&self, path: &str, accept: &str) -> Result<Fetched, PullError> {
        let url = format!("{}/{path}", self.base);
        let ask = |authorization: Option<String>| {
            let url = &url;
            async move {
                let authorization = authorization.as_deref();
                self.http.get(&self.registry, url, accept, authorization).await
            }
        };
        let known = self.authorization.lock().await.clone();
        let mut answer = ask(known.clone()).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let challenge = answer.header("www-authenticate");
            let authorization = auth::answer(self.http, &self.registry, &challenge, self.credentials).await?;
            let Some(authorization) = authorization.filter(|new| Some(new) != known.as_ref()) else {
                return Err(PullError::Denied(self.reference.to_string()));
            };
            answer = ask(Some(authorization.clone())).await?;
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

/// A manifest or index that is asked for: what the registry calls it, and what it must be.
struct Wanted {
    name: String,
    digest: Option<Digest>,
    size: Option<u64>,
}

impl From<&Reference> for Wanted {
    fn from(reference: &Reference) -> Self {
        let tag = || reference.tag.clone().unwrap_or_default();
        Self {
            name: reference.digest.as_ref().map_or_else(tag, Digest::to_string),
            digest: reference.digest.clone(),
            size: None,
        }
    }
}

impl From<&Descriptor> for Wanted {
    fn from(descriptor: &Descriptor) -> Self {
        Self {
            name: descriptor.digest.to_string(),
            digest: Some(descriptor.digest.clone()),
            size: Some(descriptor.size),
        }
    }
}

impl Wanted {
    fn check(&self, bytes: &[u8], actual: &Digest) -> Result<(), PullError> {
        let size = bytes.len() as u64;
        let expected = (self.digest.as_ref().unwrap_or(actual), self.size.unwrap_or(size));
        hold_to(|| "the manifest".to_owned(), expected, (actual, size))
    }
}

fn hold_to(
    what: impl Fn() -> String,
    (digest, size): (&Digest, u64),
    (actual_digest, actual_size): (&Digest, u64),
) -> Result<(), PullError> {
    if digest != actual_digest {
        return Err(PullError::Corrupt {
            what: what(),
            expected: digest.clone(),
            actual: actual_digest.clone(),
        });
    }
    if size != actual_size {
        return Err(PullError::WrongSize {
            what: what(),
            expected: size,
            actual: actual_size,
        });
    }
    Ok(())
}

/// Reads a header as each that a registry can lead somewhere by, for the fuzzer.
pub fn read_header(text: &str) {
    auth::read_challenge(text);
    for from in ["https://registry.example/v2/a", "http://127.0.0.1:5000/v2/a"] {
        if let Some(origin) = http::redirected(from, text) {
            assert!(origin.is_whole(), "{text:?}");
        }
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
