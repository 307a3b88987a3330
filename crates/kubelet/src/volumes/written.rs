//! The directories that are volumes, or that volumes are written into.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::mounts;
use crate::beneath::{self, Dir};
use crate::pod::quantity::Milli;
use crate::pod::{EmptyDir, HostPath};

/// The directories above a volume are for the kubelet and the runtime alone.
pub const PARENT_MODE: u32 = 0o750;

/// Makes an empty directory that every user may write to, in memory if asked. One that is there already is in use, and only
/// what is in memory may have to be mounted again.
pub fn empty_dir(root: &Path, path: &Path, source: &EmptyDir, group: Option<u32>) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
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
        (medium, _) => return Err(format!("emptyDir medium {medium:?} is not supported by this node")),
    }
    let mut directory = beneath::make_dir(root, path, PARENT_MODE).map_err(failed)?;
    if source.medium == "Memory" {
        let size = source.size_limit.as_deref().and_then(Milli::parse).map(Milli::value);
        let options = size.filter(|size| *size > 0).map(|size| format!("size={size}"));
        mounts::mount_memory(&directory, MountFlags::empty(), &options.unwrap_or_default())
            .map_err(|error| format!("cannot mount a tmpfs at {}: {error}", path.display()))?;
        directory = beneath::open_dir(root, path).map_err(failed)?;
    }
    if let Some(group) = group {
        directory.set_group(group).map_err(failed)?;
    }
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    directory.set_mode(mode).map_err(failed)
}

/// Makes the directory of a volume whose files come from objects. What may be secret is kept in memory, as upstream keeps it,
/// so that it never reaches a disk and either kubelet finds the volumes of the other as its own. A directory with files in
/// it is in use and stays where it is.
pub fn payload_dir(root: &Path, path: &Path, in_memory: bool) -> Result<Dir, String> {
    let failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
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
    mounts::mount_memory(&directory, MountFlags::NOSUID | MountFlags::NODEV, "mode=0755")
        .map_err(|error| format!("cannot mount a tmpfs at {}: {error}", path.display()))?;
    beneath::open_dir(root, path).map_err(failed)
}

/// Checks, or makes, what a hostPath volume refers to.
pub fn host_path(source: &HostPath) -> Result<PathBuf, String> {
    let path = Path::new(&source.path);
    let kind = source.kind.as_deref().unwrap_or_default();
    let found = fs::metadata(path);
    let make_failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
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
    let (holds, what) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "a directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "a file"),
        "Socket" => (is(FileTypeExt::is_socket), "a socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "a character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "a block device"),
        other => return Err(format!("{other} is an invalid volume type")),
    };
    match holds {
        true => Ok(path.to_owned()),
        false => Err(format!("hostPath type check failed: {} is not {what}", source.path)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::testing::in_mount_namespace;

    #[test]
    fn host_paths_are_what_they_claim_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let check = |name: &str, kind: &str| {
            let source = HostPath {
                path: dir.path().join(name).to_string_lossy().into_owned(),
                kind: Some(kind.to_owned()),
            };
            let shown = dir.path().to_string_lossy().into_owned();
            host_path(&source)
                .map(|_| ())
                .map_err(|error| error.replace(&shown, ""))
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

    #[test]
    fn an_empty_directory_is_open_to_all_and_its_parents_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        empty_dir(dir.path(), &path, &EmptyDir::default(), None).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o777, 0o750));
        // What is in use is left alone.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        empty_dir(dir.path(), &path, &EmptyDir::default(), None).unwrap();
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
                empty_dir(dir, &path, &source, None).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
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
