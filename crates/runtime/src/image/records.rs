//! What is known of each image, one file per image.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::config::RunConfig;
use super::digest::Digest;
use super::reference::{self, Reference};
use super::store::is_layer_name;

/// What is known of one image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// The digest of its configuration.
    pub id: String,
    /// Full names with a tag.
    pub tags: Vec<String>,
    /// Full names with the manifest's digest.
    pub digests: Vec<String>,
    /// The bytes of its layers, unpacked.
    pub size: u64,
    /// Names of directories in the layers' directory, lowest first.
    pub layers: Vec<String>,
    pub config: RunConfig,
    /// Never removed to make room, nor by request.
    #[serde(default)]
    pub pinned: bool,
}

impl Image {
    /// Reads a record. One that names files otherwise than records do is none.
    fn read(bytes: &[u8]) -> io::Result<Self> {
        let image: Self = serde_json::from_slice(bytes)?;
        let named_well = Digest::parse(&image.id).is_ok() && image.layers.iter().all(|name| is_layer_name(name));
        match named_well {
            true => Ok(image),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it names no files of images",
            )),
        }
    }
}

pub struct Records {
    dir: PathBuf,
    images: RwLock<Images>,
}

type Images = Arc<BTreeMap<String, Arc<Image>>>;

impl Records {
    /// Opens the directory of records. What cannot be read is not there.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let images = RwLock::new(Arc::new(load(&dir)));
        Ok(Self { dir, images })
    }

    /// All images by id.
    pub fn all(&self) -> Images {
        self.images.read().clone()
    }

    /// Finds an image by id, tag or digest.
    pub fn find(&self, name: &str) -> Option<Arc<Image>> {
        let images = self.all();
        if let Some(image) = reference::as_id(name).and_then(|id| images.get(&id)) {
            return Some(image.clone());
        }
        let Ok(reference) = Reference::parse(name) else {
            return by_short_id(&images, name).cloned();
        };
        let key = reference.key();
        let named = images
            .values()
            .find(|image| image.tags.contains(&key) || image.digests.contains(&key));
        named.or_else(|| by_short_id(&images, name)).cloned()
    }

    pub fn write(&self, image: &Image) -> io::Result<()> {
        crate::disk::write_synced(&self.path(&image.id), &serde_json::to_vec(image)?)?;
        Arc::make_mut(&mut *self.images.write()).insert(image.id.clone(), Arc::new(image.clone()));
        Ok(())
    }

    pub fn remove(&self, id: &str) -> io::Result<()> {
        fs::remove_file(self.path(id))?;
        Arc::make_mut(&mut *self.images.write()).remove(id);
        Ok(())
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{}.json", file_name(id)))
    }
}

/// People copy ids from tables that cut them, so the beginning of an id does if only one image has it.
fn by_short_id<'a>(images: &'a Images, name: &str) -> Option<&'a Arc<Image>> {
    let digits = name.strip_prefix("sha256:").unwrap_or(name);
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if digits.is_empty() || !digits.bytes().all(is_hex) {
        return None;
    }
    let beginning = format!("sha256:{digits}");
    let mut matching = images
        .range(beginning.clone()..)
        .take_while(|(id, _)| id.starts_with(&beginning));
    match (matching.next(), matching.next()) {
        (Some((_, image)), None) => Some(image),
        _ => None,
    }
}

fn load(dir: &Path) -> BTreeMap<String, Arc<Image>> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let records = entries.filter(|entry| entry.path().extension() == Some(OsStr::new("json")));
    let images = records.filter_map(|entry| {
        let read = fs::read(entry.path()).and_then(|bytes| Image::read(&bytes));
        read.inspect_err(
            |error| tracing::warn!(record = %entry.path().display(), %error, "Failed to read an image's record"),
        )
        .ok()
    });
    images.map(|image| (image.id.clone(), Arc::new(image))).collect()
}

/// An id as a file's name.
pub fn file_name(id: &str) -> &str {
    id.trim_start_matches("sha256:")
}
