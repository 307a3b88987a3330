//! Directories of PersistentVolumes that the provisioner of the StorageClass `local` made: each stands under its volume's
//! name in the node's directory of them, which no pod has a part in.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::{SetUpError, local, pods_using};
use crate::beneath::Dir;
use crate::claims::PersistentVolume;
use crate::paths::Paths;
use crate::volumes::{PARENT_MODE, VolumeError, mounts};

/// Any user may write to it: whose it is to be is not known before a pod with a group uses it.
const MODE: u32 = 0o777;

/// Opens the directory of a volume, or makes it when it is first used.
pub fn open_or_make(paths: &Paths, volume: &PersistentVolume) -> Result<Dir, SetUpError> {
    let name = checked_name(volume)?;
    let above = paths.local_volumes();
    let failed = |source: io::Error| SetUpError::Make {
        path: above.join(name),
        source,
    };
    make_above(above).map_err(failed)?;
    let directory = Dir::open(above).map_err(failed)?;
    match directory.child(OsStr::new(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            directory.make_child(OsStr::new(name), MODE).map_err(failed)
        }
        found => found.map_err(failed),
    }
}

/// Whether any pod of this node has the volume.
pub fn is_in_use(paths: &Paths, name: &str) -> Result<bool, VolumeError> {
    use super::PersistentType;
    Ok(!pods_using(paths, local::LocalPersistent.directory(), name)?.is_empty())
}

/// Removes the directory of a volume with everything in it. No link is followed, and nothing that is mounted in it is
/// touched: then it stays. That there is none is fine.
pub fn remove(paths: &Paths, name: &str) -> io::Result<()> {
    if !is_volume_name(name) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let above = paths.local_volumes();
    if mounts::is_anything_mounted_from(&above.join(name))? {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "something is mounted there",
        ));
    }
    match Dir::open(above) {
        Ok(directory) => directory.remove(OsStr::new(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Nobody but root looks into the directory of all volumes; pods are given theirs by a mount.
fn make_above(above: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(PARENT_MODE)
        .create(above)
}

/// The volume's own name, which its path must end with.
fn checked_name(volume: &PersistentVolume) -> Result<&str, SetUpError> {
    let name = volume.name();
    let path = volume
        .spec
        .local
        .as_ref()
        .map(|local| local.path.as_str())
        .unwrap_or_default();
    let ends_with_name = Path::new(path).file_name() == Some(OsStr::new(name));
    match is_volume_name(name) && ends_with_name {
        true => Ok(name),
        false => Err(SetUpError::InvalidPath(path.to_owned())),
    }
}

/// Names of volumes are names of files, and none that means something else.
fn is_volume_name(name: &str) -> bool {
    api::names::dns1123_subdomain(name, false).is_empty()
}
