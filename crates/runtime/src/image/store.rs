//! The images of a node: one record each, layers shared between them, and a lookup by every name they have.
//!
//! On disk: `records/<id>.json` per image, `configs/<id>` as the archive had it, `layers/<chain>/` unpacked, `work/` for
//! what is on its way. Files are named by digests that were verified, and by nothing else that an image says. A layer's
//! directory appears only when it is whole, a record only after its layers; so after a crash there is nothing to repair,
//! only what nobody refers to, which opening removes.

mod take;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};

use super::archive::ArchiveError;
use super::config::{ImageConfig, LayerCountError};
use super::digest::Digest;
use super::records::{Image, Records, file_name};
use super::reference::InvalidReference;
use super::room::Room;
use super::unpacker::{Launcher, UnpackError};
use super::work::{self, WorkDir};
use super::{builtin, skeleton};
use crate::tree;

/// How much of a layer chain's digest names its directory. All of a container's layers must fit one mount option.
const CHAIN_NAME_CHARS: usize = 24;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{0}")]
    Name(#[from] InvalidReference),
    #[error("the name {0:?} is that of the built-in image; give the image another one")]
    ReservedName(String),
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("reading the archive: {0}")]
    Spool(UnpackError),
    #[error("failed to unpack layer {digest}: {source}")]
    Layer { digest: Digest, source: UnpackError },
    #[error("{what} has digest {actual}, not {expected}")]
    Corrupt {
        what: &'static str,
        expected: Digest,
        actual: Digest,
    },
    #[error("{0}")]
    LayerCount(#[from] LayerCountError),
    #[error("layer {0} is missing; pull the image again")]
    LayerGone(Digest),
    #[error("the short name of layer {0} is taken by another layer; remove the image that has it")]
    NameTaken(Digest),
    #[error("image {0:?} is in use by a container")]
    InUse(String),
    #[error("image {0:?} is built in and cannot be removed")]
    Pinned(String),
    #[error("image store {path:?}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl ImageError {
    pub fn is_storage_full(&self) -> bool {
        matches!(self, ImageError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}

pub struct ImageStore {
    dir: PathBuf,
    layers: OwnedFd,
    records: Records,
    launcher: Launcher,
    /// One change of records and layers at a time.
    changing: Mutex<()>,
    /// The layers that images on their way count on, and how many do: they are not swept.
    held: Mutex<BTreeMap<String, usize>>,
}

impl ImageStore {
    /// Opens the store of a runtime, which nobody else may use: what earlier ones left unfinished is removed.
    pub fn open(dir: &Path, launcher: Launcher) -> Result<Self, ImageError> {
        let store = Self::attach(dir, launcher)?;
        for image in store.list().iter().filter(|image| !store.is_whole(image)) {
            // Its name is free to be imported or pulled again, which is all a user can do about it.
            tracing::warn!(
                image = image.id,
                "Removing an image whose layers are incomplete; pull it again"
            );
            store.records.remove(&image.id).map_err(at(dir))?;
        }
        store.sweep()?;
        Ok(store)
    }

    fn attach(dir: &Path, launcher: Launcher) -> Result<Self, ImageError> {
        // Images have programs that run as root, which users of the machine must not be able to start.
        let make = |dir: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        make(dir).map_err(at(dir))?;
        rustix::fs::chmod(dir, Mode::RWXU).map_err(|error| at(dir)(error.into()))?;
        for part in ["configs", "layers", work::NAME] {
            make(&dir.join(part)).map_err(at(&dir.join(part)))?;
        }
        let layers_dir = dir.join("layers");
        skeleton::make(&layers_dir).map_err(at(&layers_dir))?;
        let records = Records::open(dir.join("records")).map_err(at(&dir.join("records")))?;
        Ok(Self {
            dir: dir.to_owned(),
            layers: File::open(&layers_dir).map_err(at(&layers_dir))?.into(),
            records,
            launcher,
            changing: Mutex::default(),
            held: Mutex::default(),
        })
    }

    fn is_whole(&self, image: &Image) -> bool {
        image.layers.iter().all(|layer| self.has_layer(layer))
    }

    fn has_layer(&self, name: &str) -> bool {
        is_layer_name(name)
            && rustix::fs::statat(&self.layers, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
    }

    fn open_layer(&self, name: &str) -> Result<OwnedFd, ImageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.layers, name, flags, Mode::empty(), resolve)
            .map_err(|error| at(&self.layer_dir(name))(error.into()))
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

    /// A directory for what is being fetched.
    pub fn work_dir(&self) -> Result<WorkDir, ImageError> {
        WorkDir::new(&self.dir).map_err(at(&self.dir.join(work::NAME)))
    }

    /// Refuses what the disk has no room for.
    pub fn check_room(&self, bytes: u64) -> Result<(), ImageError> {
        Room::on(&self.layers)
            .and_then(|room| room.check(bytes))
            .map_err(at(&self.dir))
    }

    /// Which layers of an image are here already, by position. They stay for as long as the answer is kept.
    pub fn hold_layers(self: &Arc<Self>, config: &ImageConfig) -> HeldLayers {
        let names: Vec<_> = chains(config).into_iter().map(|chain| short_name(&chain)).collect();
        self.hold(&names);
        let present = names.iter().enumerate().filter(|(_, name)| self.has_layer(name));
        HeldLayers {
            present: present.map(|(index, _)| index).collect(),
            store: self.clone(),
            names,
        }
    }

    fn hold(&self, names: &[String]) {
        let mut held = self.held.lock();
        for name in names {
            *held.entry(name.clone()).or_default() += 1;
        }
    }

    fn release(&self, names: &[String]) {
        let mut held = self.held.lock();
        for name in names {
            if let Some(count) = held.get_mut(name) {
                *count -= 1;
            }
        }
        held.retain(|_, count| *count > 0);
    }

    fn size_file(&self, layer: &str) -> PathBuf {
        self.layers_dir().join(format!("{layer}.size"))
    }

    /// The size of a layer that is here. Its name is only the beginning of its digest, so that is looked at too.
    fn layer_size(&self, chain: &Digest) -> Result<u64, ImageError> {
        let path = self.size_file(&short_name(chain));
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let mut words = text.split_whitespace();
        let size = words.next().and_then(|size| size.parse().ok()).unwrap_or(0);
        match words.next() {
            Some(found) if found != chain.as_str() => Err(ImageError::NameTaken(chain.clone())),
            _ => Ok(size),
        }
    }

    /// Adds an image, taking its names from whichever image had them.
    pub fn put(&self, image: Image) -> Result<Arc<Image>, ImageError> {
        let _changing = self.changing.lock();
        self.put_changing(image)
    }

    fn put_changing(&self, mut image: Image) -> Result<Arc<Image>, ImageError> {
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
        let _changing = self.changing.lock();
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

    /// Removes everything that belongs to no image, when there can be none on its way.
    fn sweep(&self) -> Result<(), ImageError> {
        let _changing = self.changing.lock();
        self.sweep_layers()?;
        let configs: BTreeSet<_> = self
            .list()
            .iter()
            .map(|image| file_name(&image.id).to_owned())
            .collect();
        self.sweep_dir("configs", |name| configs.contains(name))?;
        self.sweep_dir("records", |name| name.ends_with(".json"))?;
        self.sweep_dir(work::NAME, |_| false)?;
        // Where earlier versions kept what was on its way.
        for part in ["downloads", "spool", "lock"] {
            tree::remove(&self.dir.join(part)).map_err(at(&self.dir.join(part)))?;
        }
        Ok(())
    }

    /// Removes what is in the layers' directory and belongs to no image, nor to one on its way.
    fn sweep_layers(&self) -> Result<(), ImageError> {
        let mut used: BTreeSet<String> = self.list().iter().flat_map(|image| image.layers.clone()).collect();
        used.extend(self.held.lock().keys().cloned());
        let is_used = |name: &str| name == skeleton::NAME || used.contains(name.trim_end_matches(".size"));
        self.sweep_dir("layers", is_used)
    }

    fn sweep_dir(&self, part: &str, keep: impl Fn(&str) -> bool) -> Result<(), ImageError> {
        let dir = self.dir.join(part);
        for entry in fs::read_dir(&dir).map_err(at(&dir))?.flatten() {
            if !keep(&entry.file_name().to_string_lossy()) {
                tree::remove(&entry.path()).map_err(at(&entry.path()))?;
            }
        }
        Ok(())
    }
}

/// The layers of an image on its way that are not swept.
pub struct HeldLayers {
    /// The positions of those that are here.
    pub present: BTreeSet<usize>,
    store: Arc<ImageStore>,
    names: Vec<String>,
}

impl Drop for HeldLayers {
    fn drop(&mut self) {
        self.store.release(&self.names);
    }
}

/// The digests that stand for an image's layers: each depends on all below it, because so does what is unpacked.
fn chains(config: &ImageConfig) -> Vec<Digest> {
    let chain = config
        .rootfs
        .diff_ids
        .iter()
        .scan(None, |chain: &mut Option<Digest>, diff_id| {
            let next = match chain {
                None => diff_id.clone(),
                Some(below) => Digest::sha256(format!("{below} {diff_id}").as_bytes()),
            };
            chain.replace(next.clone());
            Some(next)
        });
    chain.collect()
}

fn short_name(chain: &Digest) -> String {
    chain.hex()[..CHAIN_NAME_CHARS].to_owned()
}

/// Whether a record may name a directory so.
pub fn is_layer_name(name: &str) -> bool {
    let digits = name.strip_prefix(builtin::LAYER_PREFIX).unwrap_or(name);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn at(path: &Path) -> impl Fn(io::Error) -> ImageError {
    move |source| ImageError::Io {
        path: path.to_owned(),
        source,
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
