//! PersistentVolumes, once claims have led to them. A type is one file and one row of [`TYPES`].
//!
//! A pod that uses one has a directory named after it below its own, also where nothing is mounted there: it says, to this
//! kubelet and the next, who uses the volume. The data is not the pod's: tear-down unmounts and removes that directory
//! only once it is empty.

mod csi;
mod host_path;
mod local;
pub mod provisioned;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Component, Path, PathBuf};

use parking_lot::Mutex;

use super::reconstruct::{self, FoundVolume};
use super::{MountSource, MountedVolume, PARENT_MODE, SetUp, SetUpError, VolumeError, VolumeStats, stats};
use crate::beneath::{self, Dir};
use crate::claims::{BoundVolume, PersistentVolume};
use crate::paths::Paths;

pub use csi::CSI_DIRECTORY;

/// Fields of a PersistentVolume's spec that do not say what it is.
const OTHER_FIELDS: [&str; 4] = [
    "capacity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
];

/// One type of PersistentVolume.
pub trait PersistentType: Sync {
    /// The field of the spec that makes a volume one of this type.
    fn field(&self) -> &'static str;

    /// As [`VolumeType::directory`](super::VolumeType::directory).
    fn directory(&self) -> &'static str;

    fn is_type_of(&self, volume: &PersistentVolume) -> bool;

    /// Whether it can be mounted with options.
    fn takes_mount_options(&self) -> bool {
        false
    }

    /// A driver mounts and unmounts it, and keeps its own directories.
    fn is_mounted_by_driver(&self) -> bool {
        false
    }

    /// Whether a pod has the volume.
    fn is_set_up(&self, paths: &Paths, uid: &str, volume: &PersistentVolume) -> bool {
        has_directory(self, paths, uid, volume)
    }

    /// Sets the volume up. `place` is the pod's directory for it, and `is_first` says that no other pod of this node uses it.
    fn set_up(&self, request: &PersistentSetUp<'_>, place: &Dir) -> Result<MountSource, SetUpError>;
}

/// Every type, sorted by its field.
pub static TYPES: &[&dyn PersistentType] = &[
    &csi::CsiPersistent,
    &host_path::HostPathPersistent,
    &local::LocalPersistent,
];

/// What a PersistentVolume is set up from.
pub struct PersistentSetUp<'a> {
    pub request: &'a SetUp<'a>,
    pub bound: &'a BoundVolume,
    /// No other pod of this node uses it.
    pub is_first: bool,
    /// The pod's directory for the volume.
    pub path: PathBuf,
}

/// Two pods must not both find that nobody uses a volume.
static TAKING: Mutex<()> = Mutex::new(());

pub fn set_up(request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
    let bound = request.claim.ok_or(SetUpError::NoClaim)?;
    let known = type_of(&bound.volume).ok_or_else(|| unsupported(&bound.volume))?;
    if !bound.volume.spec.mount_options.is_empty() && !known.takes_mount_options() {
        return Err(SetUpError::NoMountOptions);
    }
    if known.is_mounted_by_driver() {
        return Ok(MountedVolume {
            source: request.published.ok_or(SetUpError::NotPublished)?.clone(),
            read_only: bound.read_only,
            claim: Some(bound.claim.clone()),
        });
    }
    let (paths, uid) = (request.paths, &request.pod.metadata.uid);
    let path = paths.volume(uid, known.directory(), bound.volume.name());
    let (place, is_first) = take(paths, uid, &path, known, &bound.volume)?;
    let set_up = PersistentSetUp {
        request,
        bound,
        is_first,
        path,
    };
    Ok(MountedVolume {
        source: known.set_up(&set_up, &place)?,
        read_only: bound.read_only,
        claim: Some(bound.claim.clone()),
    })
}

/// A volume that is a directory of a file system is as full as that file system, as upstream tells it.
pub fn stats(volume: &MountedVolume) -> Option<VolumeStats> {
    match &volume.source {
        MountSource::Path(path) => stats::of_file_system(path),
        MountSource::Image(_) | MountSource::Device(_) => None,
    }
}

/// The directory in which a pod has a PersistentVolume, if it has it.
pub fn is_set_up(paths: &Paths, uid: &str, volume: &PersistentVolume) -> bool {
    type_of(volume).is_some_and(|known| known.is_set_up(paths, uid, volume))
}

fn has_directory(known: &(impl PersistentType + ?Sized), paths: &Paths, uid: &str, volume: &PersistentVolume) -> bool {
    let path = paths.volume(uid, known.directory(), volume.name());
    beneath::open_dir(paths.root(), &path).is_ok()
}

/// The type under whose name a kubelet before this one set up a volume.
pub fn type_of_directory(directory: &str) -> Option<&'static dyn PersistentType> {
    TYPES.iter().copied().find(|known| known.directory() == directory)
}

/// Unmounts a volume and removes the directory that it was mounted at, which then is empty: data is never removed.
pub fn tear_down(paths: &Paths, found: &FoundVolume) -> Result<(), VolumeError> {
    reconstruct::unmount(paths, &found.path)?;
    beneath::remove_empty_dir(paths.root(), &found.path).map_err(|source| VolumeError::Remove {
        path: found.path.clone(),
        source,
    })
}

/// The pods of this node that have a PersistentVolume of this name.
pub fn pods_using(paths: &Paths, directory: &str, name: &str) -> Result<Vec<String>, VolumeError> {
    let mut pods = reconstruct::pods_on_disk(paths)?;
    pods.retain(|uid| beneath::open_dir(paths.root(), &paths.volume(uid, directory, name)).is_ok());
    Ok(pods)
}

fn type_of(volume: &PersistentVolume) -> Option<&'static dyn PersistentType> {
    TYPES.iter().copied().find(|known| known.is_type_of(volume))
}

fn unsupported(volume: &PersistentVolume) -> SetUpError {
    let fields = volume.spec.other.keys().map(String::as_str);
    let sources: Vec<&str> = fields.filter(|field| !OTHER_FIELDS.contains(field)).collect();
    SetUpError::UnsupportedType(sources.join(", "))
}

/// Makes the pod's directory for a volume, unless another pod has a volume that only one may have. True if no other has it.
fn take(
    paths: &Paths,
    uid: &str,
    path: &Path,
    known: &dyn PersistentType,
    volume: &PersistentVolume,
) -> Result<(Dir, bool), SetUpError> {
    let _alone = TAKING.lock();
    let users =
        pods_using(paths, known.directory(), volume.name()).map_err(|error| SetUpError::Users(Box::new(error)))?;
    let is_first = users.iter().all(|user| user == uid);
    if !is_first && volume.is_read_write_once_pod() {
        return Err(SetUpError::ReadWriteOncePod);
    }
    let place = beneath::make_dir(paths.root(), path, PARENT_MODE).map_err(|source| SetUpError::Make {
        path: path.to_owned(),
        source,
    })?;
    Ok((place, is_first))
}

/// A path of the host that an administrator wrote into a PersistentVolume.
fn checked_path(path: &str) -> Result<&Path, SetUpError> {
    let checked = Path::new(path);
    let is_plain = checked.is_absolute() && checked.components().all(|part| part != Component::ParentDir);
    match is_plain {
        true => Ok(checked),
        false => Err(SetUpError::InvalidPath(path.to_owned())),
    }
}

fn open_failed(path: &Path) -> impl Fn(io::Error) -> SetUpError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::NotFound => SetUpError::NoPath(path.clone()),
        _ => SetUpError::Open {
            path: path.clone(),
            source,
        },
    }
}
