//! Volumes that begin empty and live as long as their pod, on disk or in memory.

use std::io;
use std::path::Path;

use rustix::mount::MountFlags;

use super::{MountedVolume, PARENT_MODE, SetUp, SetUpError, VolumeStats, VolumeType, mounts, stats};
use crate::beneath;
use crate::pod::quantity::Milli;
use crate::pod::{EmptyDir, Volume};

pub struct EmptyDirVolume;

impl VolumeType for EmptyDirVolume {
    fn field(&self) -> &'static str {
        "emptyDir"
    }

    fn directory(&self) -> &'static str {
        "empty-dir"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.empty_dir.is_some() || volume.has_no_source()
    }

    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
        let path = request.path(self);
        let source = request.volume.empty_dir.clone().unwrap_or_default();
        make(request.paths.root(), &path, &source, request.fs_group())?;
        Ok(MountedVolume::writable(path))
    }

    fn stats(&self, volume: &MountedVolume) -> Option<VolumeStats> {
        stats::of_directory(volume)
    }
}

/// Makes an empty directory that every user may write to, in memory if asked. One that is there already is in use, and only
/// what is in memory may have to be mounted again.
fn make(root: &Path, path: &Path, source: &EmptyDir, group: Option<u32>) -> Result<(), SetUpError> {
    let failed = |source: io::Error| SetUpError::Make {
        path: path.to_owned(),
        source,
    };
    let found = match beneath::open_dir(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found.map_err(failed)?),
    };
    match (source.medium.as_str(), found) {
        ("", Some(_)) => return Ok(()),
        ("", None) => {}
        ("Memory", found) => {
            let is_mounted = found.is_some_and(|found| beneath::is_mount_root(found).unwrap_or(false));
            if is_mounted {
                return Ok(());
            }
        }
        (medium, _) => return Err(SetUpError::UnsupportedMedium(medium.to_owned())),
    }
    let mut directory = beneath::make_dir(root, path, PARENT_MODE).map_err(failed)?;
    if source.medium == "Memory" {
        let size = source.size_limit.as_deref().and_then(Milli::parse).map(Milli::value);
        let options = size.filter(|size| *size > 0).map(|size| format!("size={size}"));
        mounts::mount_memory(&directory, MountFlags::empty(), &options.unwrap_or_default()).map_err(|source| {
            SetUpError::MountMemory {
                path: path.to_owned(),
                source,
            }
        })?;
        directory = beneath::open_dir(root, path).map_err(failed)?;
    }
    if let Some(group) = group {
        directory.set_group(group).map_err(failed)?;
    }
    let of_group = if group.is_some() { 0o2000 } else { 0 };
    // Upstream leaves a file system in memory as the kernel makes it, in which nobody removes others' files.
    let sticky = if source.medium == "Memory" { 0o1000 } else { 0 };
    directory.set_mode(0o777 | of_group | sticky).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::testing::in_mount_namespace;

    #[test]
    fn an_empty_directory_is_open_to_all_and_its_parents_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        make(dir.path(), &path, &EmptyDir::default(), None).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o777, 0o750));
        // What is in use is left alone.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        make(dir.path(), &path, &EmptyDir::default(), None).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn an_empty_directory_in_memory_is_mounted_once() {
        in_mount_namespace(|dir| {
            let path = dir.join("a");
            let source = EmptyDir {
                medium: "Memory".to_owned(),
                size_limit: Some("64Ki".to_owned()),
            };
            for _ in 0..2 {
                make(dir, &path, &source, None).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o1777);
                let _ = fs::write(path.join("f"), "kept");
            }
            assert_eq!(fs::read_to_string(path.join("f")).unwrap(), "kept");
            assert!(
                fs::write(path.join("large"), vec![1; 1 << 20]).is_err(),
                "the size limit holds"
            );
        });
    }

    #[test]
    fn a_directory_of_a_group_gives_it_to_what_is_made_in_it() {
        in_mount_namespace(|dir| {
            for (medium, mode) in [("", 0o2777), ("Memory", 0o3777)] {
                let path = dir.join(format!("of{medium}"));
                let source = EmptyDir {
                    medium: medium.to_owned(),
                    ..EmptyDir::default()
                };
                make(dir, &path, &source, Some(123)).unwrap();
                let metadata = fs::metadata(&path).unwrap();
                assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (mode, 123));
            }
        });
    }
}
