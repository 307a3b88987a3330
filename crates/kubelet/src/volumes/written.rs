//! Volumes whose files the kubelet writes: where they are, and how they change.

use std::io;
use std::path::Path;

use rustix::mount::MountFlags;

use super::payload::Payload;
use super::{MountedVolume, PARENT_MODE, SetUp, SetUpError, VolumeType, atomic, mounts};
use crate::beneath::{self, Dir};

/// Writes files that anybody on the node may know.
pub fn write_on_disk(
    request: &SetUp<'_>,
    volume_type: &dyn VolumeType,
    files: &Payload,
) -> Result<MountedVolume, SetUpError> {
    write(request, volume_type, files, false)
}

/// Writes files that may hold passwords or tokens.
pub fn write_in_memory(
    request: &SetUp<'_>,
    volume_type: &dyn VolumeType,
    files: &Payload,
) -> Result<MountedVolume, SetUpError> {
    write(request, volume_type, files, true)
}

fn write(
    request: &SetUp<'_>,
    volume_type: &dyn VolumeType,
    files: &Payload,
    in_memory: bool,
) -> Result<MountedVolume, SetUpError> {
    let (path, now) = (request.path(volume_type), request.now);
    let directory = payload_dir(request.paths.root(), &path, in_memory)?;
    let stamp = format!("{}_{}", now.seconds().replace(['-', ':', 'T', 'Z'], ""), now.0 % 1000);
    match atomic::write(&directory, files, request.fs_group(), &stamp) {
        Ok(_) => Ok(MountedVolume::written_by_kubelet(path)),
        Err(source) => Err(SetUpError::Write { path, source }),
    }
}

/// Makes the directory of a volume whose files come from objects. What may be secret is kept in memory, as upstream keeps it,
/// so that it never reaches a disk and either kubelet finds the volumes of the other as its own. A directory with files in
/// it is in use and stays where it is.
fn payload_dir(root: &Path, path: &Path, in_memory: bool) -> Result<Dir, SetUpError> {
    let failed = |source: io::Error| SetUpError::Make {
        path: path.to_owned(),
        source,
    };
    let directory = match beneath::open_dir(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = beneath::make_dir(root, path, PARENT_MODE).map_err(failed)?;
            made.set_mode(0o755).map_err(failed)?;
            made
        }
        found => found.map_err(failed)?,
    };
    let is_settled = !in_memory
        || beneath::is_mount_root(&directory).map_err(failed)?
        || !directory.entries().map_err(failed)?.is_empty();
    if is_settled {
        return Ok(directory);
    }
    mounts::mount_memory(&directory, MountFlags::NOSUID | MountFlags::NODEV, "mode=0755").map_err(|source| {
        SetUpError::MountMemory {
            path: path.to_owned(),
            source,
        }
    })?;
    beneath::open_dir(root, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::in_mount_namespace;

    #[test]
    fn what_may_be_secret_is_in_memory_unless_it_is_in_use_on_disk() {
        const TMPFS: u64 = 0x0102_1994;
        let in_memory = |path: &Path| rustix::fs::statfs(path).unwrap().f_type as u64 == TMPFS;
        in_mount_namespace(|dir| {
            let (secret, public, used) = (dir.join("v/secret"), dir.join("v/public"), dir.join("v/used"));
            fs::create_dir_all(&used).unwrap();
            fs::write(used.join("token"), "x").unwrap();
            for _ in 0..2 {
                payload_dir(dir, &secret, true).unwrap();
                payload_dir(dir, &public, false).unwrap();
                payload_dir(dir, &used, true).unwrap();
            }
            assert_eq!(
                (in_memory(&secret), in_memory(&public), in_memory(&used)),
                (true, false, false)
            );
            assert_eq!(fs::read_to_string(used.join("token")).unwrap(), "x");
        });
    }
}
