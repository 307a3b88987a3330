//! Reading image archives: an OCI layout or the output of `docker save`, as a tar that may be compressed.
//!
//! The archive's files are first spooled to a directory, because the file that says what the others are may come
//! last. An unpacker does that ([`spool`]), under names of our own. [`images`] then answers what images there are;
//! layers stay files until `store` has them unpacked.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::config::{ImageConfig, LayerCountError};
use super::digest::Digest;
use super::layer::Allowed;
use super::limits::{
    MAX_ARCHIVE_FILES, MAX_ARCHIVE_LINKS, MAX_ARCHIVE_METADATA_BYTES, MAX_ARCHIVE_NAME_BYTES, MAX_CONFIG_BYTES,
    MAX_EXTENSION_BYTES, MAX_INDEX_DEPTH, MAX_MANIFEST_BYTES,
};
use super::manifest::{Descriptor, Document, DocumentError, platform};
use super::room::Room;

/// The file of a spool that says what the others are. Their names are numbers.
const CONTENTS: &str = "contents";
const MAX_CONTENTS_BYTES: u64 = 3 * (MAX_ARCHIVE_FILES * MAX_ARCHIVE_NAME_BYTES) as u64;

/// What reading a document takes beside its bytes.
const METADATA_COST_BYTES: u64 = 1024;
/// How much of an archive's name is repeated to the user.
const SHOWN_CHARS: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("failed to read the archive: {0}")]
    Read(#[from] io::Error),
    #[error("the archive is neither an OCI layout (index.json) nor from docker save (manifest.json)")]
    Unknown,
    #[error("{file}: {source}")]
    Malformed { file: String, source: serde_json::Error },
    #[error("{file}: {source}")]
    Document { file: String, source: DocumentError },
    #[error("{0} is not in the archive")]
    Missing(String),
    #[error("{file} has digest {actual}, not {expected}")]
    Corrupt {
        file: String,
        expected: Digest,
        actual: Digest,
    },
    #[error("{file} has {actual} bytes, not {expected}")]
    WrongSize { file: String, expected: u64, actual: u64 },
    #[error("the archive has no image for {0}")]
    NoPlatform(String),
    #[error("the archive has more than {MAX_ARCHIVE_FILES} files")]
    TooManyFiles,
    #[error("the archive has more than {0} bytes")]
    TooLarge(u64),
    #[error("{file} is larger than {limit} bytes")]
    MetadataTooLarge { file: String, limit: u64 },
    #[error(
        "the manifests and configurations of the archive's images take more than {MAX_ARCHIVE_METADATA_BYTES} bytes"
    )]
    TooMuchMetadata,
    #[error("{0}")]
    LayerCount(#[from] LayerCountError),
}

/// An image that was read from an archive or fetched from a registry, with its layers still packed.
#[derive(Debug)]
pub struct PackedImage {
    /// The names the archive gives it, as written there.
    pub names: Vec<String>,
    /// The digest of its manifest, which archives of docker save have not.
    pub manifest_digest: Option<Digest>,
    /// The digest of the configuration: the image's id.
    pub id: Digest,
    pub config_bytes: Vec<u8>,
    pub config: ImageConfig,
    /// Lowest first. None for those that are unpacked already.
    pub layers: Vec<Option<PackedLayer>>,
}

/// A layer's file; compressed or not.
#[derive(Debug)]
pub struct PackedLayer {
    pub file: File,
    /// What the file's digest must turn out to be, where that was not seen to yet.
    pub unverified: Option<Digest>,
}

/// What an archive has, by the names it uses.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Contents {
    /// The numbers by which the files were spooled.
    files: BTreeMap<String, usize>,
    links: BTreeMap<String, String>,
}

/// Spools the files of an archive to an empty directory.
pub fn spool(archive: impl Read, dir: BorrowedFd<'_>, max_bytes: u64) -> Result<(), ArchiveError> {
    let mut contents = Contents::default();
    let allowance = Cell::new(0);
    let mut archive = tar::Archive::new(Allowed {
        inner: archive,
        allowance: &allowance,
    });
    let mut entries = archive.entries()?;
    let (mut bytes, mut count) = (0_u64, 0);
    loop {
        allowance.set(MAX_EXTENSION_BYTES);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry?;
        allowance.set(u64::MAX);
        let kind = entry.header().entry_type();
        bytes = bytes.saturating_add(entry.size());
        count += 1;
        if count > MAX_ARCHIVE_FILES {
            return Err(ArchiveError::TooManyFiles);
        }
        if bytes > max_bytes {
            return Err(ArchiveError::TooLarge(max_bytes));
        }
        match plain_name(&entry.path()?) {
            Some(name) if kind.is_file() => {
                Room::on(dir)?.check(entry.size())?;
                io::copy(&mut entry, &mut create(dir, &count.to_string())?)?;
                contents.files.insert(name, count);
            }
            Some(name) if kind.is_symlink() || kind.is_hard_link() => {
                let base = match kind.is_symlink() {
                    true => Path::new(&name).parent().unwrap_or(Path::new("")).to_owned(),
                    false => PathBuf::new(),
                };
                let target = entry.link_name()?.and_then(|target| text(&joined(&base, &target)?));
                contents.links.extend(target.map(|target| (name, target)));
            }
            _ => {}
        }
        io::copy(&mut entry, &mut io::sink())?;
    }
    Ok(serde_json::to_writer(create(dir, CONTENTS)?, &contents).map_err(io::Error::from)?)
}

/// Gives the images of a spooled archive to `take`, one after the other: an archive may name more than fit in memory.
pub fn images<E: From<ArchiveError>>(
    spool: BorrowedFd<'_>,
    take: &mut dyn FnMut(PackedImage) -> Result<(), E>,
) -> Result<(), E> {
    let contents = Files::open(spool)?;
    if contents.contains("index.json") {
        return contents.oci_images(take);
    }
    if contents.contains("manifest.json") {
        return contents.docker_images(take);
    }
    Err(ArchiveError::Unknown.into())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// A spooled archive.
struct Files<'a> {
    dir: BorrowedFd<'a>,
    contents: Contents,
    /// How much may still be read of manifests, indexes and configurations, which can name each other many times.
    metadata_bytes_left: Cell<u64>,
}

impl<'a> Files<'a> {
    fn open(dir: BorrowedFd<'a>) -> Result<Self, ArchiveError> {
        let contents = read_limited(open(dir, CONTENTS)?, CONTENTS, MAX_CONTENTS_BYTES)?;
        Ok(Self {
            dir,
            contents: parse(CONTENTS, &contents)?,
            metadata_bytes_left: Cell::new(MAX_ARCHIVE_METADATA_BYTES),
        })
    }

    /// The number of the file behind a name of the archive.
    fn number(&self, name: &str) -> Option<usize> {
        let mut name = plain_name(Path::new(name))?;
        for _ in 0..MAX_ARCHIVE_LINKS {
            match self.contents.links.get(&name) {
                Some(target) => name = target.clone(),
                None => break,
            }
        }
        self.contents.files.get(&name).copied()
    }

    fn contains(&self, name: &str) -> bool {
        self.number(name).is_some()
    }

    fn file(&self, name: &str) -> Result<File, ArchiveError> {
        let number = self.number(name);
        let number = number.ok_or_else(|| ArchiveError::Missing(short(name)))?;
        Ok(open(self.dir, &number.to_string())?)
    }

    fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, ArchiveError> {
        self.read_metadata(self.file(name)?, name, limit)
    }

    fn read_metadata(&self, file: File, name: &str, limit: u64) -> Result<Vec<u8>, ArchiveError> {
        let bytes = read_limited(file, name, limit)?;
        // Each takes a little even when it is empty.
        let cost = bytes.len() as u64 + METADATA_COST_BYTES;
        match self.metadata_bytes_left.get().checked_sub(cost) {
            Some(left) => self.metadata_bytes_left.set(left),
            None => return Err(ArchiveError::TooMuchMetadata),
        }
        Ok(bytes)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<(String, File), ArchiveError> {
        let name = format!("blobs/sha256/{}", descriptor.digest.hex());
        let file = self.file(&name)?;
        let actual = file.metadata()?.len();
        if actual != descriptor.size {
            let expected = descriptor.size;
            return Err(ArchiveError::WrongSize {
                file: name,
                expected,
                actual,
            });
        }
        Ok((name, file))
    }

    fn read_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Vec<u8>, ArchiveError> {
        let (name, file) = self.blob(descriptor)?;
        let bytes = self.read_metadata(file, &name, limit)?;
        let actual = Digest::sha256(&bytes);
        if actual != descriptor.digest {
            return Err(ArchiveError::Corrupt {
                file: name,
                expected: descriptor.digest.clone(),
                actual,
            });
        }
        Ok(bytes)
    }

    fn oci_images<E: From<ArchiveError>>(&self, take: &mut dyn FnMut(PackedImage) -> Result<(), E>) -> Result<(), E> {
        let bytes = self.read("index.json", MAX_MANIFEST_BYTES)?;
        let Document::Index(index) = document("index.json", &bytes, "")? else {
            return Err(ArchiveError::Unknown.into());
        };
        let mut found = false;
        for descriptor in &index.manifests {
            if let Some(image) = self.oci_image(descriptor, &names(descriptor), 0)? {
                found = true;
                take(image)?;
            }
        }
        match found {
            true => Ok(()),
            false => Err(ArchiveError::NoPlatform(platform()).into()),
        }
    }

    /// The image behind a descriptor: itself, or that for this machine in an index. None for another machine.
    fn oci_image(
        &self,
        descriptor: &Descriptor,
        names: &[String],
        depth: u32,
    ) -> Result<Option<PackedImage>, ArchiveError> {
        if !descriptor.is_ours() || depth > MAX_INDEX_DEPTH {
            return Ok(None);
        }
        let bytes = self.read_blob(descriptor, MAX_MANIFEST_BYTES)?;
        let manifest = match document(descriptor.digest.as_str(), &bytes, &descriptor.media_type)? {
            Document::Manifest(manifest) => manifest,
            Document::Index(index) => {
                let mut found = index
                    .manifests
                    .iter()
                    .map(|inner| self.oci_image(inner, names, depth + 1));
                return found.find_map(Result::transpose).transpose();
            }
        };
        let config_bytes = self.read_blob(&manifest.config, MAX_CONFIG_BYTES)?;
        let config: ImageConfig = parse(manifest.config.digest.as_str(), &config_bytes)?;
        config.check_layer_count(manifest.layers.len())?;
        let layers = manifest.layers.iter().map(|layer| {
            let (_, file) = self.blob(layer)?;
            let unverified = Some(layer.digest.clone());
            Ok(Some(PackedLayer { file, unverified }))
        });
        Ok(Some(PackedImage {
            names: names.to_vec(),
            manifest_digest: Some(descriptor.digest.clone()),
            id: manifest.config.digest.clone(),
            layers: layers.collect::<Result<_, ArchiveError>>()?,
            config,
            config_bytes,
        }))
    }

    fn docker_images<E: From<ArchiveError>>(
        &self,
        take: &mut dyn FnMut(PackedImage) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.read("manifest.json", MAX_MANIFEST_BYTES)?;
        let manifests: Vec<DockerManifest> = parse("manifest.json", &bytes)?;
        manifests
            .into_iter()
            .try_for_each(|manifest| take(self.docker_image(manifest)?))
    }

    fn docker_image(&self, manifest: DockerManifest) -> Result<PackedImage, ArchiveError> {
        let config_bytes = self.read(&manifest.config, MAX_CONFIG_BYTES)?;
        let config: ImageConfig = parse(&manifest.config, &config_bytes)?;
        config.check_layer_count(manifest.layers.len())?;
        let layers = manifest.layers.iter().map(|layer| {
            let file = self.file(layer)?;
            Ok(Some(PackedLayer { file, unverified: None }))
        });
        Ok(PackedImage {
            names: manifest.repo_tags.unwrap_or_default(),
            manifest_digest: None,
            id: Digest::sha256(&config_bytes),
            layers: layers.collect::<Result<_, ArchiveError>>()?,
            config,
            config_bytes,
        })
    }
}

fn create(dir: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?.into())
}

fn open(dir: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?.into())
}

fn read_limited(file: File, name: &str, limit: u64) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let file = short(name);
        return Err(ArchiveError::MetadataTooLarge { file, limit });
    }
    Ok(bytes)
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
        file: short(file),
        source,
    })
}

fn document(file: &str, bytes: &[u8], announced: &str) -> Result<Document, ArchiveError> {
    Document::read(bytes, announced).map_err(|source| ArchiveError::Document {
        file: file.to_owned(),
        source,
    })
}

fn short(name: &str) -> String {
    name.chars().take(SHOWN_CHARS).collect()
}

/// A path of nothing but names, as text that is not too long, or None.
fn plain_name(path: &Path) -> Option<String> {
    text(&joined(Path::new(""), path)?)
}

fn text(path: &Path) -> Option<String> {
    let text = path.to_str()?.to_owned();
    (text.len() <= MAX_ARCHIVE_NAME_BYTES).then_some(text)
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
