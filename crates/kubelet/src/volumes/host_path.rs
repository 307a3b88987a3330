//! Volumes that are a file or directory of the host.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{MountedVolume, SetUp, SetUpError, VolumeType};
use crate::pod::{HostPath, Volume};

pub struct HostPathVolume;

impl VolumeType for HostPathVolume {
    fn field(&self) -> &'static str {
        "hostPath"
    }

    fn directory(&self) -> &'static str {
        "host-path"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.host_path.is_some()
    }

    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
        let source = request.volume.host_path.clone().unwrap_or_default();
        check(&source).map(MountedVolume::writable)
    }
}

/// Checks, or makes, what a hostPath volume refers to.
pub fn check(source: &HostPath) -> Result<PathBuf, SetUpError> {
    let path = Path::new(&source.path);
    let kind = source.kind.as_deref().unwrap_or_default();
    let found = fs::metadata(path);
    let make_failed = |source: io::Error| SetUpError::Make {
        path: path.to_owned(),
        source,
    };
    match (kind, &found) {
        ("DirectoryOrCreate", Err(_)) => {
            fs::create_dir_all(path).map_err(make_failed)?;
            return Ok(path.to_owned());
        }
        ("FileOrCreate", Err(_)) => {
            // Whoever made it meanwhile keeps what they wrote.
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(false);
            options.open(path).map_err(make_failed)?;
            return Ok(path.to_owned());
        }
        ("", _) => return Ok(path.to_owned()),
        _ => {}
    }
    let file_type = found.map(|found| found.file_type());
    let is = |test: fn(&fs::FileType) -> bool| file_type.as_ref().is_ok_and(test);
    let (holds, expected) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "a directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "a file"),
        "Socket" => (is(FileTypeExt::is_socket), "a socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "a character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "a block device"),
        other => return Err(SetUpError::InvalidHostPathType(other.to_owned())),
    };
    match holds {
        true => Ok(path.to_owned()),
        false => Err(SetUpError::HostPathType {
            path: source.path.clone(),
            expected,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_what_they_claim_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let check = |name: &str, kind: &str| {
            let source = HostPath {
                path: dir.path().join(name).to_string_lossy().into_owned(),
                kind: Some(kind.to_owned()),
            };
            let shown = dir.path().to_string_lossy().into_owned();
            super::check(&source)
                .map(|_| ())
                .map_err(|error| error.to_string().replace(&shown, ""))
        };
        assert_eq!(check("x", ""), Ok(()));
        assert_eq!(
            check("x", "Directory"),
            Err("hostPath type check failed: /x is not a directory".to_owned())
        );
        assert_eq!(check("x", "DirectoryOrCreate"), Ok(()));
        assert_eq!(check("x", "Directory"), Ok(()));
        assert_eq!(
            check("x", "File"),
            Err("hostPath type check failed: /x is not a file".to_owned())
        );
        assert_eq!(check("f", "FileOrCreate"), Ok(()));
        assert_eq!(
            check("f", "Socket"),
            Err("hostPath type check failed: /f is not a socket file".to_owned())
        );
    }
}
