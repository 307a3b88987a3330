//! Volumes that are directories: emptyDir and hostPath, and the kernel's part in them.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::pod::quantity::Milli;
use crate::pod::{EmptyDir, HostPath};

/// Makes an empty directory that every user may write to, in memory if asked.
pub fn empty_dir(path: &Path, source: &EmptyDir, group: Option<u32>) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
    fs::create_dir_all(path).map_err(failed)?;
    match source.medium.as_str() {
        "" => {}
        "Memory" => mount_tmpfs(path, source.size_limit.as_deref())?,
        medium => return Err(format!("emptyDir medium {medium:?} is not supported by this node")),
    }
    let owned = group.map_or(Ok(()), |group| std::os::unix::fs::chown(path, None, Some(group)));
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    owned
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(failed)
}

fn mount_tmpfs(path: &Path, size_limit: Option<&str>) -> Result<(), String> {
    if is_mount_point(path) {
        return Ok(());
    }
    let size = size_limit.and_then(Milli::parse).map(|limit| limit.value());
    let options = size.map_or_else(String::new, |size| format!("size={size}"));
    let options = std::ffi::CString::new(options).map_err(|error| error.to_string())?;
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str())
        .map_err(|error| format!("cannot mount a tmpfs at {}: {error}", path.display()))
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
            fs::File::create(path).map_err(make_failed)?;
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

/// Whether something is mounted exactly here: its device or inode differs from what its parent suggests.
pub fn is_mount_point(path: &Path) -> bool {
    let Some(parent) = path.parent() else {
        return true;
    };
    match (fs::symlink_metadata(path), fs::symlink_metadata(parent)) {
        (Ok(own), Ok(above)) => own.dev() != above.dev() || own.ino() == above.ino(),
        _ => false,
    }
}

/// Unmounts everything below a directory, the innermost first. Nothing outside of it is touched.
pub fn unmount_below(directory: &Path) -> Result<(), String> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("cannot read mounts: {error}"))?;
    let mut below = mount_points(&table, directory);
    below.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in below {
        rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| format!("cannot unmount {}: {error}", path.display()))?;
    }
    Ok(())
}

fn mount_points(table: &str, directory: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .map(|point| PathBuf::from(unescape(point)))
        .filter(|point| point.starts_with(directory) && point != directory)
        .collect()
}

/// The kernel writes blanks, tabs, newlines and backslashes as octal.
fn unescape(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
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
    fn only_mounts_below_a_directory_are_its_own() {
        let table = "\
36 35 98:0 / /var/lib/k/pods/u/volumes/a rw - tmpfs tmpfs rw
37 35 98:0 / /var/lib/k/pods/u2/volumes/a rw - tmpfs tmpfs rw
38 35 98:0 / /var/lib/k/pods/u rw - ext4 x rw
39 35 98:0 / /var/lib/k/pods/u/volumes/b\\040c rw - tmpfs tmpfs rw
";
        let below = mount_points(table, Path::new("/var/lib/k/pods/u"));
        let expected = ["/var/lib/k/pods/u/volumes/a", "/var/lib/k/pods/u/volumes/b c"].map(PathBuf::from);
        assert_eq!(below, expected);
    }

    #[test]
    fn an_empty_directory_is_open_to_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        empty_dir(&path, &EmptyDir::default(), None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    }
}
