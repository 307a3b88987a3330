//! The images of a node: one record each, layers shared between them, and a lookup by every name they have.
//!
//! On disk: `records/<id>.json` per image, `configs/<id>` as the archive had it, `layers/<chain>/` unpacked. A layer's
//! directory appears only when it is whole, a record only after its layers; so after a crash there is nothing to repair,
//! only what nobody refers to, which opening removes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::archive::{self, ArchiveError, ArchivedImage};
use super::config::ImageConfig;
use super::digest::{self, Digesting};
use super::layer::{self, LayerError};
use super::records::{Image, Records, file_name};
use super::reference::{InvalidReference, Reference};
use super::skeleton;

/// How much of a layer chain's digest names its directory. All of a container's layers must fit one mount option.
const CHAIN_NAME_CHARS: usize = 24;

/// The options of an overlay must fit one page; image builders stop at this number too.
const MAX_LAYERS: usize = 128;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{0}")]
    Name(#[from] InvalidReference),
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("unpacking layer {digest}: {source}")]
    Layer { digest: String, source: LayerError },
    #[error("layer {expected} has digest {actual}")]
    Corrupt { expected: String, actual: String },
    #[error("the image lists {layers} layers but {diff_ids} digests for them, or more than {MAX_LAYERS}")]
    LayerCount { layers: usize, diff_ids: usize },
    #[error("image {0:?} is in use by a container")]
    InUse(String),
    #[error("image {0:?} is built in and cannot be removed")]
    Pinned(String),
    #[error("image store {path:?}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

pub struct ImageStore {
    dir: PathBuf,
    records: Records,
    changing: Mutex<File>,
}

impl ImageStore {
    /// Opens the store of a runtime: what earlier ones left unfinished is removed.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        let store = Self::attach(dir)?;
        let changing = store.change()?;
        for image in store.list().iter().filter(|image| !store.is_whole(image)) {
            // Its name is free to be imported or pulled again, which is all a user can do about it.
            tracing::warn!(image = image.id, "dropping an image that is not whole");
            store.records.remove(&image.id).map_err(at(dir))?;
        }
        store.sweep_layers()?;
        remove_dir(&dir.join("downloads"))?;
        drop(changing);
        Ok(store)
    }

    /// Opens the store beside a runtime that may be running.
    pub fn attach(dir: &Path) -> Result<Self, ImageError> {
        let make = |part: &str| fs::create_dir_all(dir.join(part)).map_err(at(&dir.join(part)));
        ["configs", "layers"].into_iter().try_for_each(make)?;
        let layers = dir.join("layers");
        skeleton::make(&layers).map_err(at(&layers))?;
        let records = Records::open(dir.join("records")).map_err(at(&dir.join("records")))?;
        let lock = File::create(dir.join("lock")).map_err(at(&dir.join("lock")))?;
        Ok(Self {
            dir: dir.to_owned(),
            records,
            changing: Mutex::new(lock),
        })
    }

    /// One change at a time, in all processes, so that no layer is removed while an import counts on it.
    pub(super) fn change(&self) -> Result<Changing<'_>, ImageError> {
        let lock = self.changing.lock();
        lock.lock().map_err(at(&self.dir.join("lock")))?;
        Ok(Changing(lock))
    }

    fn is_whole(&self, image: &Image) -> bool {
        image.layers.iter().all(|layer| self.layer_dir(layer).is_dir())
    }

    pub fn layers_dir(&self) -> PathBuf {
        self.dir.join("layers")
    }

    pub fn layer_dir(&self, layer: &str) -> PathBuf {
        self.layers_dir().join(layer)
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        self.records.all().values().cloned().collect()
    }

    /// Finds an image by id, tag or digest.
    pub fn find(&self, name: &str) -> Option<Arc<Image>> {
        self.records.find(name)
    }

    /// Imports every image of an archive and answers them.
    pub fn import(&self, archive: impl Read + 'static) -> Result<Vec<Arc<Image>>, ImageError> {
        let _changing = self.change()?;
        let spool = self.dir.join("spool");
        remove_dir(&spool)?;
        fs::create_dir(&spool).map_err(at(&spool))?;
        let imported = self.import_spooled(archive, &spool);
        remove_dir(&spool)?;
        imported
    }

    /// Takes over an image that was fetched from a registry.
    pub fn take(&self, fetched: ArchivedImage) -> Result<Arc<Image>, ImageError> {
        let _changing = self.change()?;
        self.import_image(fetched)
    }

    /// Which layers of an image other images have brought already, by position.
    pub fn present_layers(&self, config: &ImageConfig) -> BTreeSet<usize> {
        let names = chain_names(&config.rootfs.diff_ids);
        let present = names
            .iter()
            .enumerate()
            .filter(|(_, name)| self.layer_dir(name).is_dir());
        present.map(|(index, _)| index).collect()
    }

    /// A directory for what is being fetched, which goes when it is dropped.
    pub fn download_dir(&self) -> Result<DownloadDir, ImageError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = self
            .dir
            .join("downloads")
            .join(format!("{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        Ok(DownloadDir(dir))
    }

    fn import_spooled(&self, archive: impl Read + 'static, spool: &Path) -> Result<Vec<Arc<Image>>, ImageError> {
        let plain = archive::decompressed(archive).map_err(ArchiveError::from)?;
        let images = archive::open(plain, spool)?;
        images.into_iter().map(|image| self.import_image(image)).collect()
    }

    fn import_image(&self, archived: ArchivedImage) -> Result<Arc<Image>, ImageError> {
        let names = archived
            .names
            .iter()
            .map(|name| Reference::parse(name))
            .collect::<Result<Vec<_>, _>>()?;
        let (layers, size) = self.unpack_layers(&archived)?;
        let digests = archived
            .manifest_digest
            .iter()
            .flat_map(|digest| names.iter().map(move |name| format!("{}@{digest}", name.repository)));
        let image = Image {
            id: archived.id,
            tags: names
                .iter()
                .filter(|name| name.digest.is_none())
                .map(Reference::key)
                .collect(),
            digests: digests.collect(),
            size,
            layers,
            config: archived.config.config,
            pinned: false,
        };
        let config = self.dir.join("configs").join(file_name(&image.id));
        fs::write(&config, &archived.config_bytes).map_err(at(&config))?;
        self.put(image)
    }

    fn unpack_layers(&self, archived: &ArchivedImage) -> Result<(Vec<String>, u64), ImageError> {
        let diff_ids = &archived.config.rootfs.diff_ids;
        if diff_ids.len() != archived.layers.len() || diff_ids.len() > MAX_LAYERS {
            return Err(ImageError::LayerCount {
                layers: archived.layers.len(),
                diff_ids: diff_ids.len(),
            });
        }
        let (mut layers, mut size) = (Vec::new(), 0);
        for ((file, diff_id), name) in archived.layers.iter().zip(diff_ids).zip(chain_names(diff_ids)) {
            size += self.unpack_layer(file, diff_id, &name, &layers)?;
            layers.push(name);
        }
        Ok((layers, size))
    }

    /// Unpacks one layer unless another image has brought it already. Answers its size.
    fn unpack_layer(&self, file: &Path, diff_id: &str, name: &str, below: &[String]) -> Result<u64, ImageError> {
        let (dir, size_file) = (self.layer_dir(name), self.layers_dir().join(format!("{name}.size")));
        if dir.is_dir() {
            let size = fs::read_to_string(&size_file).map_err(at(&size_file))?;
            return Ok(size.parse().unwrap_or(0));
        }
        let partial = self.layers_dir().join(format!("{name}.partial"));
        remove_dir(&partial)?;
        fs::create_dir(&partial).map_err(at(&partial))?;
        let below: Vec<_> = below.iter().rev().map(|layer| self.layer_dir(layer)).collect();
        let stream = File::open(file).and_then(archive::decompressed).map_err(at(file))?;
        let mut stream = Digesting::new(stream);
        let size = layer::unpack(&mut stream, &partial, &below).map_err(|source| ImageError::Layer {
            digest: diff_id.to_owned(),
            source,
        })?;
        let actual = stream.finish().map_err(at(file))?;
        if actual != diff_id {
            remove_dir(&partial)?;
            return Err(ImageError::Corrupt {
                expected: diff_id.to_owned(),
                actual,
            });
        }
        fs::write(&size_file, size.to_string()).map_err(at(&size_file))?;
        // A layer must not turn out torn after a crash that its record survived.
        let synced = File::open(&partial).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
        synced.map_err(at(&partial))?;
        fs::rename(&partial, &dir).map_err(at(&dir))?;
        Ok(size)
    }

    /// Adds an image, taking its names from whichever image had them.
    pub fn put(&self, mut image: Image) -> Result<Arc<Image>, ImageError> {
        let images = self.records.all();
        for other in images.values().filter(|other| other.id != image.id) {
            if other.tags.iter().any(|tag| image.tags.contains(tag)) {
                let mut changed = Image::clone(other);
                changed.tags.retain(|tag| !image.tags.contains(tag));
                self.write(&changed)?;
            }
        }
        if let Some(known) = images.get(&image.id) {
            image.tags = union(&known.tags, &image.tags);
            image.digests = union(&known.digests, &image.digests);
        }
        if images.get(&image.id).is_none_or(|known| **known != image) {
            self.write(&image)?;
        }
        Ok(Arc::new(image))
    }

    fn write(&self, image: &Image) -> Result<(), ImageError> {
        self.records.write(image).map_err(at(&self.dir.join("records")))
    }

    /// Removes an image with all its names, and the layers that no other image needs. `in_use` says whether a
    /// container stands on an image. Removing what is not there succeeds.
    pub fn remove(&self, name: &str, in_use: impl Fn(&str) -> bool) -> Result<(), ImageError> {
        let _changing = self.change()?;
        let Some(image) = self.find(name) else { return Ok(()) };
        if image.pinned {
            return Err(ImageError::Pinned(name.to_owned()));
        }
        if in_use(&image.id) {
            return Err(ImageError::InUse(name.to_owned()));
        }
        self.records.remove(&image.id).map_err(at(&self.dir.join("records")))?;
        let _ = fs::remove_file(self.dir.join("configs").join(file_name(&image.id)));
        self.sweep_layers()
    }

    /// Removes what is in the layers' directory and belongs to no image.
    fn sweep_layers(&self) -> Result<(), ImageError> {
        let used: BTreeSet<String> = self.list().iter().flat_map(|image| image.layers.clone()).collect();
        let layers = self.layers_dir();
        for entry in fs::read_dir(&layers).map_err(at(&layers))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == skeleton::NAME || used.contains(name.trim_end_matches(".size")) {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                remove_dir(&path)?
            } else {
                fs::remove_file(&path).map_err(at(&path))?
            }
        }
        Ok(())
    }
}

/// The names of an image's layers: each depends on all below it, because so does what is unpacked.
fn chain_names(diff_ids: &[String]) -> Vec<String> {
    let chain = diff_ids.iter().scan(String::new(), |chain, diff_id| {
        *chain = match chain.is_empty() {
            true => diff_id.clone(),
            false => digest::of(format!("{chain} {diff_id}").as_bytes()),
        };
        Some(
            chain
                .trim_start_matches("sha256:")
                .chars()
                .take(CHAIN_NAME_CHARS)
                .collect(),
        )
    });
    chain.collect()
}

pub struct DownloadDir(PathBuf);

impl DownloadDir {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DownloadDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(dir = %self.0.display(), %error, "removing what was fetched");
        }
    }
}

/// Held while the store changes.
pub(super) struct Changing<'a>(MutexGuard<'a, File>);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Closing the file would release it as well; there is nothing to do about an error.
        let _ = self.0.unlock();
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> ImageError {
    move |source| ImageError::Io {
        path: path.to_owned(),
        source,
    }
}

fn remove_dir(path: &Path) -> Result<(), ImageError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

fn union(one: &[String], other: &[String]) -> Vec<String> {
    one.iter()
        .chain(other)
        .cloned()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests;
