//! Files that change all at once: readers see either the old set or the new one.
//!
//! The layout is upstream's: the files live in a directory named after the time, `..data` is a link to it, and every
//! visible name is a link through `..data`. A change writes a new directory and then renames one link.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path};

const DATA: &str = "..data";
const DATA_NEXT: &str = "..data_tmp";

/// The content of a volume, by path.
pub type Payload = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
    /// The owner, if not root.
    pub uid: Option<u32>,
}

/// Brings `target` to the payload; `stamp` makes the directory's name unique. True if anything changed.
pub fn write(target: &Path, payload: &Payload, group: Option<u32>, stamp: &str) -> io::Result<bool> {
    for path in payload.keys() {
        check_path(path)?;
    }
    fs::create_dir_all(target)?;
    let old = fs::read_link(target.join(DATA)).ok();
    if let Some(old) = &old
        && holds(&target.join(old), payload)?
    {
        return Ok(false);
    }
    let fresh = format!("..{stamp}");
    write_files(&target.join(&fresh), payload, group)?;
    // Links before the switch would dangle for the first payload, so the switch comes first.
    let _ = fs::remove_file(target.join(DATA_NEXT));
    symlink(&fresh, target.join(DATA_NEXT))?;
    fs::rename(target.join(DATA_NEXT), target.join(DATA))?;
    link_visible(target, payload)?;
    if let Some(old) = old {
        fs::remove_dir_all(target.join(old))?;
    }
    Ok(true)
}

/// Paths stay inside the volume and out of the writer's own names.
fn check_path(path: &str) -> io::Result<()> {
    let inside = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(name) if !name.to_string_lossy().starts_with("..")));
    match inside && !path.is_empty() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("invalid path: must be relative and may not contain '..': {path}"),
        )),
    }
}

fn write_files(directory: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    fs::create_dir(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for (path, file) in payload {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut options = fs::OpenOptions::new();
        let mut out = options.write(true).create_new(true).mode(0o600).open(&path)?;
        io::Write::write_all(&mut out, &file.content)?;
        // Members of the pod's group may read what its owner may.
        let mode = match group {
            Some(_) => file.mode | 0o440,
            None => file.mode,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        if file.uid.is_some() || group.is_some() {
            std::os::unix::fs::chown(&path, file.uid, group)?;
        }
    }
    match group {
        Some(group) => own_directories(directory, group),
        None => Ok(()),
    }
}

fn own_directories(directory: &Path, group: u32) -> io::Result<()> {
    std::os::unix::fs::chown(directory, None, Some(group))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o2775))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            own_directories(&entry.path(), group)?;
        }
    }
    Ok(())
}

/// Whether the directory has exactly these files.
fn holds(directory: &Path, payload: &Payload) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    if collect(directory, "", &mut found).is_err() || found.len() != payload.len() {
        return Ok(false);
    }
    for (path, file) in payload {
        if !found.contains(path) {
            return Ok(false);
        }
        let path = directory.join(path);
        let same_mode = fs::metadata(&path)?.mode() & file.mode == file.mode;
        if !same_mode || fs::read(&path)? != file.content {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect(directory: &Path, prefix: &str, found: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), &format!("{name}/"), found)?,
            false => _ = found.insert(name),
        }
    }
    Ok(())
}

/// Makes the visible names those of the payload.
fn link_visible(target: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let wanted: BTreeSet<String> = payload.keys().map(first).collect();
    for entry in fs::read_dir(target)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    for name in &wanted {
        let link = target.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |content: &str| File {
            content: content.as_bytes().to_vec(),
            mode: 0o640,
            uid: None,
        };
        files
            .iter()
            .map(|(path, content)| (path.to_string(), file(content)))
            .collect()
    }

    fn listing(target: &Path) -> String {
        let mut names: Vec<String> = fs::read_dir(target)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().to_string_lossy().into_owned();
                match fs::read_link(entry.path()) {
                    Ok(link) => format!("{name} -> {}", link.display()),
                    Err(_) => name,
                }
            })
            .collect();
        names.sort();
        names.join("\n")
    }

    #[test]
    fn a_change_replaces_everything_by_one_rename() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("volume");
        let first = payload(&[("a", "1"), ("sub/b", "2")]);
        assert!(write(&target, &first, None, "t1").unwrap());
        assert_eq!(
            listing(&target),
            "..data -> ..t1\n..t1\na -> ..data/a\nsub -> ..data/sub"
        );
        assert_eq!(fs::read_to_string(target.join("sub/b")).unwrap(), "2");
        assert_eq!(fs::metadata(target.join("a")).unwrap().mode() & 0o777, 0o640);

        assert!(!write(&target, &first, None, "t2").unwrap(), "nothing changed");
        assert!(write(&target, &payload(&[("a", "3")]), None, "t3").unwrap());
        assert_eq!(listing(&target), "..data -> ..t3\n..t3\na -> ..data/a");
        assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "3");
    }

    #[test]
    fn paths_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x", "..data", ""] {
            assert!(write(dir.path(), &payload(&[(path, "")]), None, "t").is_err(), "{path}");
        }
    }
}
