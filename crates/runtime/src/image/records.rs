//! What is known of each image, one file per image, shared with other processes: `karve image import` adds to the
//! directory of a running Karve, which sees by the directory's time that there is something to read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::config::RunConfig;
use super::reference::{self, Reference};

/// A change just after we have read may carry the same time as what we have read. So young a time is not trusted.
const SETTLED: Duration = Duration::from_millis(100);

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

pub struct Records {
    dir: PathBuf,
    loaded: RwLock<Loaded>,
}

#[derive(Default)]
struct Loaded {
    images: Arc<BTreeMap<String, Arc<Image>>>,
    /// The directory's time when it was read.
    as_of: Option<SystemTime>,
}

impl Records {
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        Ok(Self {
            dir,
            loaded: RwLock::default(),
        })
    }

    /// All images by id, as the directory has them now. What cannot be read is not there.
    pub fn all(&self) -> Arc<BTreeMap<String, Arc<Image>>> {
        let changed_at = fs::metadata(&self.dir).and_then(|metadata| metadata.modified()).ok();
        {
            let loaded = self.loaded.read();
            if loaded.as_of.is_some() && loaded.as_of == changed_at {
                return loaded.images.clone();
            }
        }
        let images = Arc::new(self.load());
        let settled = |at: &SystemTime| at.elapsed().is_ok_and(|age| age > SETTLED);
        *self.loaded.write() = Loaded {
            images: images.clone(),
            as_of: changed_at.filter(settled),
        };
        images
    }

    fn load(&self) -> BTreeMap<String, Arc<Image>> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let records = entries.filter(|entry| entry.path().extension() == Some(OsStr::new("json")));
        let images = records.filter_map(|entry| {
            let read = fs::read(entry.path()).and_then(|bytes| Ok(serde_json::from_slice::<Image>(&bytes)?));
            read.inspect_err(
                |error| tracing::warn!(record = %entry.path().display(), %error, "reading an image's record"),
            )
            .ok()
        });
        images.map(|image| (image.id.clone(), Arc::new(image))).collect()
    }

    /// Finds an image by id, tag or digest.
    pub fn find(&self, name: &str) -> Option<Arc<Image>> {
        let images = self.all();
        if let Some(image) = reference::as_id(name).and_then(|id| images.get(&id)) {
            return Some(image.clone());
        }
        let key = Reference::parse(name).ok()?.key();
        images
            .values()
            .find(|image| image.tags.contains(&key) || image.digests.contains(&key))
            .cloned()
    }

    pub fn write(&self, image: &Image) -> io::Result<()> {
        crate::disk::write_synced(&self.path(&image.id), &serde_json::to_vec(image)?)?;
        self.loaded.write().as_of = None;
        Ok(())
    }

    pub fn remove(&self, id: &str) -> io::Result<()> {
        fs::remove_file(self.path(id))?;
        self.loaded.write().as_of = None;
        Ok(())
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{}.json", file_name(id)))
    }
}

/// An id as a file's name.
pub fn file_name(id: &str) -> &str {
    id.trim_start_matches("sha256:")
}
