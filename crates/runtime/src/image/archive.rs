//! Reading image archives: an OCI layout or the output of `docker save`, as a tar that may be compressed.
//!
//! The archive's files are first spooled to a directory, because the file that says what the others are may come
//! last. [`open`] then answers what images there are; layers stay files until `store` unpacks them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::config::ImageConfig;
use super::digest;
use super::manifest::{Descriptor, Index, Manifest, platform};

/// Manifests, indexes and configurations larger than this are refused.
const MAX_METADATA_BYTES: u64 = 16 << 20;
const MAX_ARCHIVE_BYTES: u64 = 64 << 30;
const MAX_ARCHIVE_FILES: usize = 10_000;
/// How deep an index may lead to further indexes.
const MAX_INDEX_DEPTH: u32 = 4;
/// How many links lead from a layer's name to its file.
const MAX_LINKS: u32 = 4;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("reading the archive: {0}")]
    Read(#[from] io::Error),
    #[error("the archive is neither an OCI layout (index.json) nor from docker save (manifest.json)")]
    Unknown,
    #[error("{file}: {source}")]
    Malformed { file: String, source: serde_json::Error },
    #[error("{0} is not in the archive")]
    Missing(String),
    #[error("{file} has digest {actual}, not {expected}")]
    Corrupt {
        file: String,
        expected: String,
        actual: String,
    },
    #[error("the archive has no image for {0}")]
    NoPlatform(String),
    #[error("the archive is larger than {MAX_ARCHIVE_BYTES} bytes or has more than {MAX_ARCHIVE_FILES} files")]
    TooLarge,
    #[error("{0} is larger than {MAX_METADATA_BYTES} bytes")]
    MetadataTooLarge(String),
}

/// One image of an archive.
#[derive(Debug)]
pub struct ArchivedImage {
    /// The names the archive gives it, as written there.
    pub names: Vec<String>,
    /// The digest of its manifest, which archives of docker save have not.
    pub manifest_digest: Option<String>,
    /// The digest of the configuration: the image's id.
    pub id: String,
    pub config_bytes: Vec<u8>,
    pub config: ImageConfig,
    /// The layers' files, lowest first; compressed or not.
    pub layers: Vec<PathBuf>,
}

/// Spools an archive to a directory, which must be empty, and reads what images it has.
pub fn open(archive: impl Read, spool: &Path) -> Result<Vec<ArchivedImage>, ArchiveError> {
    let files = Files::spool(archive, spool)?;
    if files.contains("index.json") {
        return files.oci_images();
    }
    if files.contains("manifest.json") {
        return files.docker_images();
    }
    Err(ArchiveError::Unknown)
}

/// Undoes the compression that a stream's first bytes announce, if any.
pub fn decompressed(stream: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    let mut stream = BufReader::with_capacity(1 << 16, stream);
    let magic = io::BufRead::fill_buf(&mut stream)?;
    if magic.starts_with(GZIP) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(stream)));
    }
    if magic.starts_with(ZSTD) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(stream).map_err(io::Error::other)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(stream))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

struct Files {
    dir: PathBuf,
    /// Links of the archive, by name; files are in the directory.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Files {
    fn spool(archive: impl Read, dir: &Path) -> Result<Self, ArchiveError> {
        let mut files = Self {
            dir: dir.to_owned(),
            links: BTreeMap::new(),
        };
        let (mut bytes, mut count) = (0, 0);
        for entry in tar::Archive::new(archive).entries()? {
            let mut entry = entry?;
            let Some(path) = plain(&entry.path()?) else { continue };
            bytes += entry.size();
            count += 1;
            if bytes > MAX_ARCHIVE_BYTES || count > MAX_ARCHIVE_FILES {
                return Err(ArchiveError::TooLarge);
            }
            match entry.header().entry_type() {
                kind if kind.is_file() => {
                    let target = dir.join(&path);
                    fs::create_dir_all(target.parent().unwrap_or(dir))?;
                    io::copy(&mut entry, &mut File::create(target)?)?;
                }
                kind if kind.is_symlink() || kind.is_hard_link() => {
                    let Some(target) = entry.link_name()? else { continue };
                    let base = if kind.is_symlink() {
                        path.parent().unwrap_or(Path::new(""))
                    } else {
                        Path::new("")
                    };
                    files.links.extend(joined(base, &target).map(|target| (path, target)));
                }
                _ => {}
            }
        }
        Ok(files)
    }

    /// Where the contents of a name of the archive are.
    fn file(&self, name: &str) -> Result<PathBuf, ArchiveError> {
        let missing = || ArchiveError::Missing(name.to_owned());
        let mut path = plain(Path::new(name)).ok_or_else(missing)?;
        for _ in 0..MAX_LINKS {
            match self.links.get(&path) {
                Some(target) => path = target.clone(),
                None => break,
            }
        }
        let file = self.dir.join(path);
        if file.is_file() { Ok(file) } else { Err(missing()) }
    }

    fn contains(&self, name: &str) -> bool {
        self.file(name).is_ok()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        File::open(self.file(name)?)?
            .take(MAX_METADATA_BYTES + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_METADATA_BYTES {
            return Err(ArchiveError::MetadataTooLarge(name.to_owned()));
        }
        Ok(bytes)
    }

    fn blob_name(descriptor: &Descriptor) -> String {
        format!("blobs/{}", descriptor.digest.replace(':', "/"))
    }

    fn read_blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ArchiveError> {
        let name = Self::blob_name(descriptor);
        let bytes = self.read(&name)?;
        let actual = digest::of(&bytes);
        if actual != descriptor.digest {
            return Err(ArchiveError::Corrupt {
                file: name,
                expected: descriptor.digest.clone(),
                actual,
            });
        }
        Ok(bytes)
    }

    fn oci_images(&self) -> Result<Vec<ArchivedImage>, ArchiveError> {
        let index: Index = parse("index.json", &self.read("index.json")?)?;
        let mut images = Vec::new();
        for descriptor in &index.manifests {
            images.extend(self.oci_image(descriptor, &names(descriptor), 0)?);
        }
        if images.is_empty() {
            Err(ArchiveError::NoPlatform(platform()))
        } else {
            Ok(images)
        }
    }

    /// The image behind a descriptor: itself, or that for this machine in an index. None for another machine.
    fn oci_image(
        &self,
        descriptor: &Descriptor,
        names: &[String],
        depth: u32,
    ) -> Result<Option<ArchivedImage>, ArchiveError> {
        if !descriptor.is_ours() || depth > MAX_INDEX_DEPTH {
            return Ok(None);
        }
        let bytes = self.read_blob(descriptor)?;
        if descriptor.is_index() {
            let index: Index = parse(&descriptor.digest, &bytes)?;
            let mut found = index
                .manifests
                .iter()
                .map(|inner| self.oci_image(inner, names, depth + 1));
            return found.find_map(Result::transpose).transpose();
        }
        let manifest: Manifest = parse(&descriptor.digest, &bytes)?;
        let config_bytes = self.read_blob(&manifest.config)?;
        Ok(Some(ArchivedImage {
            names: names.to_vec(),
            manifest_digest: Some(descriptor.digest.clone()),
            id: manifest.config.digest.clone(),
            config: parse(&manifest.config.digest, &config_bytes)?,
            config_bytes,
            layers: manifest
                .layers
                .iter()
                .map(|layer| self.file(&Self::blob_name(layer)))
                .collect::<Result<_, _>>()?,
        }))
    }

    fn docker_images(&self) -> Result<Vec<ArchivedImage>, ArchiveError> {
        let manifests: Vec<DockerManifest> = parse("manifest.json", &self.read("manifest.json")?)?;
        let images = manifests.into_iter().map(|manifest| {
            let config_bytes = self.read(&manifest.config)?;
            Ok(ArchivedImage {
                names: manifest.repo_tags.unwrap_or_default(),
                manifest_digest: None,
                id: digest::of(&config_bytes),
                config: parse(&manifest.config, &config_bytes)?,
                config_bytes,
                layers: manifest
                    .layers
                    .iter()
                    .map(|layer| self.file(layer))
                    .collect::<Result<_, _>>()?,
            })
        });
        images.collect()
    }
}

/// The names an archive gives an image. The standard annotation is often only a tag, which names nothing by itself.
fn names(descriptor: &Descriptor) -> Vec<String> {
    let full = descriptor.annotations.get("io.containerd.image.name");
    let standard = descriptor
        .annotations
        .get("org.opencontainers.image.ref.name")
        .filter(|n| n.contains(['/', ':']));
    full.or(standard).cloned().into_iter().collect()
}

fn parse<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|source| ArchiveError::Malformed {
        file: file.to_owned(),
        source,
    })
}

/// A path of nothing but names, or None.
fn plain(path: &Path) -> Option<PathBuf> {
    joined(Path::new(""), path)
}

fn joined(base: &Path, path: &Path) -> Option<PathBuf> {
    let mut plain = base.to_owned();
    for component in path.components() {
        match component {
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            _ => return None,
        }
    }
    (!plain.as_os_str().is_empty()).then_some(plain)
}
