//! What is set up on this node, read from the kubelet's directory: a kubelet that starts knows nothing else about what
//! one before it mounted. Tear-down works from the same look, so that it also ends what nobody remembers.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::{TYPES, VolumeError, VolumeType, mounts, persistent};
use crate::beneath;
use crate::paths::Paths;

/// The domain of upstream's volume types in the names of directories.
const DOMAIN: &str = "kubernetes.io~";

/// A volume that was set up for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVolume {
    /// Upstream's name of its type, as [`VolumeType::directory`] gives it.
    pub directory: String,
    pub name: String,
    pub path: PathBuf,
}

impl FoundVolume {
    pub fn volume_type(&self) -> Option<&'static dyn VolumeType> {
        TYPES.iter().copied().find(|known| known.directory() == self.directory)
    }
}

/// The volumes that were set up for a pod.
pub fn found_volumes(paths: &Paths, uid: &str) -> Result<Vec<FoundVolume>, VolumeError> {
    let volumes = paths.volumes(uid);
    let mut found = Vec::new();
    for kind in directories(paths, &volumes)? {
        let above = volumes.join(&kind);
        let directory = kind.strip_prefix(DOMAIN).unwrap_or(&kind).to_owned();
        for name in directories(paths, &above)? {
            found.push(FoundVolume {
                directory: directory.clone(),
                path: above.join(&name),
                name,
            });
        }
    }
    Ok(found)
}

/// The UIDs of the pods that have anything on this node.
pub fn pods_on_disk(paths: &Paths) -> Result<Vec<String>, VolumeError> {
    directories(paths, &paths.pods())
}

/// Unmounts what was mounted for a pod and removes its volumes.
pub fn tear_down(paths: &Paths, uid: &str) -> Result<(), VolumeError> {
    tear_down_subpaths(paths, uid)?;
    for found in found_volumes(paths, uid)? {
        if found.directory == persistent::CSI_DIRECTORY {
            // Its driver has to be asked first, which is not done here.
            return Err(VolumeError::StillPublished(found.name));
        }
        if persistent::type_of_directory(&found.directory).is_some() {
            persistent::tear_down(paths, &found)?;
        } else if let Some(known) = found.volume_type() {
            known.tear_down(paths, &found)?;
        } else {
            remove_volume(paths, &found)?;
        }
    }
    unmount(paths, &paths.pod(uid))?;
    remove(paths, &paths.volumes(uid))
}

/// Subpaths are parts of volumes, bound elsewhere; they go before what they are parts of.
pub fn tear_down_subpaths(paths: &Paths, uid: &str) -> Result<(), VolumeError> {
    let subpaths = paths.subpaths(uid);
    unmount(paths, &subpaths)?;
    remove(paths, &subpaths)
}

/// Removes what else there is of a pod whose volumes are torn down.
pub fn remove_pod(paths: &Paths, uid: &str) -> Result<(), VolumeError> {
    remove(paths, &paths.pod(uid))
}

/// Unmounts a volume and removes its directory with what is in it. What could not be unmounted stays whole.
pub fn remove_volume(paths: &Paths, found: &FoundVolume) -> Result<(), VolumeError> {
    unmount(paths, &found.path)?;
    remove(paths, &found.path)
}

pub fn unmount(paths: &Paths, path: &Path) -> Result<(), VolumeError> {
    mounts::unmount_from(paths.root(), path).map_err(|source| VolumeError::Unmount {
        path: path.to_owned(),
        source,
    })
}

fn remove(paths: &Paths, path: &Path) -> Result<(), VolumeError> {
    beneath::remove_below(paths.root(), path).map_err(|source| VolumeError::Remove {
        path: path.to_owned(),
        source,
    })
}

/// The directories in a directory of the kubelet's; none if it does not exist. Names that are not text are not the
/// kubelet's.
fn directories(paths: &Paths, path: &Path) -> Result<Vec<String>, VolumeError> {
    let entries = beneath::open_dir(paths.root(), path).and_then(|directory| directory.entries());
    let entries = match entries {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries.map_err(|source| VolumeError::Read {
            path: path.to_owned(),
            source,
        })?,
    };
    let directories = entries.into_iter().filter(|(_, kind)| *kind == FileType::Directory);
    let mut names: Vec<String> = directories
        .filter_map(|(name, _)| OsStr::to_str(&name).map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}
