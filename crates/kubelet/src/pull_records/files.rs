//! The records on disk: one file for each image that was pulled and for each pull under way. Directories, names and
//! contents are upstream's.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Credentials;
use crate::moment::Moment;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const NAME_PREFIX: &str = "sha256-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// No record of a sane node is larger.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// `ImagePulledRecord`: what an image that is on the node was pulled with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PulledRecord {
    kind: String,
    api_version: String,
    pub last_updated_time: Moment,
    /// The image's id in the runtime.
    pub image_ref: String,
    /// By the name that pods use, without tag and digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credential_mapping: BTreeMap<String, Credentials>,
}

/// `ImagePullIntent`: a pull that has begun.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PullIntent {
    kind: String,
    api_version: String,
    image: String,
}

impl PulledRecord {
    pub fn new(id: &str) -> PulledRecord {
        PulledRecord {
            kind: "ImagePulledRecord".to_owned(),
            api_version: API_VERSION.to_owned(),
            last_updated_time: Moment::now(),
            image_ref: id.to_owned(),
            credential_mapping: BTreeMap::new(),
        }
    }
}

/// What the directories have, all of it in memory as well: it is asked for at each start of a container.
pub struct Files {
    pulling_dir: PathBuf,
    pulled_dir: PathBuf,
    /// By the names of their files, and how many pulls of the image are under way in this process.
    pulling: BTreeMap<String, u32>,
    /// By the names of their files; None for what cannot be read.
    pulled: BTreeMap<String, Option<PulledRecord>>,
}

impl Files {
    pub fn open(root: &Path) -> io::Result<Files> {
        let dir = root.join("image_manager");
        let (pulling_dir, pulled_dir) = (dir.join("pulling"), dir.join("pulled"));
        for dir in [&pulling_dir, &pulled_dir] {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        // Which image an unreadable intent was for is not known, and so not denied to anybody: as upstream has it.
        let intents = load::<PullIntent>(&pulling_dir)?.into_iter();
        let intents = intents.filter(|(name, intent)| intent.as_ref().is_some_and(|i| file_name(&i.image) == *name));
        let records = load::<PulledRecord>(&pulled_dir)?.into_iter();
        let records = records.filter(|(name, record)| record.as_ref().is_none_or(|r| file_name(&r.image_ref) == *name));
        Ok(Files {
            pulling: intents.map(|(name, _)| (name, 0)).collect(),
            pulled: records.collect(),
            pulling_dir,
            pulled_dir,
        })
    }

    pub fn is_pulling(&self) -> bool {
        !self.pulling.is_empty()
    }

    pub fn is_being_pulled(&self, image: &str) -> bool {
        !self.pulling.is_empty() && self.pulling.contains_key(&file_name(image))
    }

    /// The record of an image: none, one that cannot be read, or one.
    pub fn pulled(&self, id: &str) -> Option<Option<&PulledRecord>> {
        if self.pulled.is_empty() {
            return None;
        }
        self.pulled.get(&file_name(id)).map(Option::as_ref)
    }

    pub fn begin(&mut self, image: &str) -> io::Result<()> {
        let name = file_name(image);
        let intent = PullIntent {
            kind: "ImagePullIntent".to_owned(),
            api_version: API_VERSION.to_owned(),
            image: image.to_owned(),
        };
        write(&self.pulling_dir, &name, &intent)?;
        *self.pulling.entry(name).or_default() += 1;
        Ok(())
    }

    /// Ends a pull that was begun. The last one of an image takes the mark away.
    pub fn end(&mut self, image: &str) -> io::Result<()> {
        match self.pulling.get_mut(&file_name(image)) {
            Some(count) if *count > 1 => {
                *count -= 1;
                Ok(())
            }
            _ => self.forget_pull(image),
        }
    }

    pub fn forget_pull(&mut self, image: &str) -> io::Result<()> {
        let name = file_name(image);
        remove(&self.pulling_dir.join(&name))?;
        self.pulling.remove(&name);
        Ok(())
    }

    pub fn write(&mut self, record: PulledRecord) -> io::Result<()> {
        let name = file_name(&record.image_ref);
        write(&self.pulled_dir, &name, &record)?;
        self.pulled.insert(name, Some(record));
        Ok(())
    }

    /// The ids of the images whose records were last changed before a moment.
    pub fn recorded_before(&self, as_of: Moment) -> Vec<String> {
        let records = self.pulled.values().flatten();
        let old = records.filter(|record| record.last_updated_time < as_of);
        old.map(|record| record.image_ref.clone()).collect()
    }

    pub fn remove(&mut self, id: &str) -> io::Result<()> {
        let name = file_name(id);
        remove(&self.pulled_dir.join(&name))?;
        self.pulled.remove(&name);
        Ok(())
    }
}

pub fn file_name(text: &str) -> String {
    use std::fmt::Write;
    let digest = digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().fold(NAME_PREFIX.to_owned(), |mut name, byte| {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// The records in a directory by the names of their files; None for what cannot be read.
fn load<T: DeserializeOwned>(dir: &Path) -> io::Result<BTreeMap<String, Option<T>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.ends_with(TEMPORARY_SUFFIX) {
            let _ = fs::remove_file(entry.path());
        } else if name.starts_with(NAME_PREFIX) {
            let record = read(&entry.path()).inspect_err(
                |error| tracing::error!(record = name, %error, "Failed to read the record of a pulled image"),
            );
            found.insert(name, record.ok());
        }
    }
    Ok(found)
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Writes a file for root alone that is either old or new, never in part.
fn write(dir: &Path, name: &str, record: &impl Serialize) -> io::Result<()> {
    let temporary = dir.join(format!("{name}{TEMPORARY_SUFFIX}"));
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    let mut bytes = serde_json::to_vec(record)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    fs::rename(&temporary, dir.join(name))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
