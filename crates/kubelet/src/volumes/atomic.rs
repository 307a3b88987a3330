//! Files that change all at once: readers see either the old set or the new one.
//!
//! The layout is upstream's: the files live in a directory named after the time, `..data` is a link to it, and every
//! visible name is a link through `..data`. A change writes a new directory and then renames one link.
//!
//! Containers see the volume read-only, but nothing is believed that stands in it: what is not exactly what a writer
//! leaves is replaced, and neither reading nor removing follows a link or leaves the volume.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Component, Path};

use rustix::fs::{FileType, fstat, renameat, symlinkat};

use crate::beneath::{self, Dir};

const DATA: &str = "..data";
const DATA_NEXT: &str = "..data_tmp";
/// Names tried for a new directory of files.
const MAX_NAMES: u32 = 100;

/// The content of a volume, by path.
pub type Payload = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
    /// The owner, if not root.
    pub uid: Option<u32>,
}

/// Brings the volume to the payload; `stamp` is what the new directory is named after. True if anything changed.
pub fn write(volume: &Dir, payload: &Payload, group: Option<u32>, stamp: &str) -> io::Result<bool> {
    for path in payload.keys() {
        check_path(path)?;
    }
    let current = current(volume);
    if let Some((_, directory)) = &current
        && holds(directory, payload, group)
        && shows(volume, payload)
    {
        return Ok(false);
    }
    remove_all_but(volume, current.as_ref().map(|(name, _)| name.as_os_str()))?;
    let fresh = write_files(volume, payload, group, stamp)?;
    // Links before the switch would dangle for the first payload, so the switch comes first.
    switch(volume, &fresh)?;
    link_visible(volume, payload)?;
    remove_all_but(volume, Some(&fresh))?;
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

/// The directory that `..data` leads to, if that is one that a writer made.
fn current(volume: &Dir) -> Option<(OsString, Dir)> {
    let name = volume.read_link(OsStr::new(DATA)).ok()?;
    if !is_files_directory(&name) {
        return None;
    }
    let directory = volume.child(&name).ok()?;
    Some((name, directory))
}

/// Names of directories of files begin with two dots, and are not the names of links.
fn is_files_directory(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    text.len() > 2 && text.starts_with("..") && !text.contains('/') && text != DATA && text != DATA_NEXT
}

fn write_files(volume: &Dir, payload: &Payload, group: Option<u32>, stamp: &str) -> io::Result<OsString> {
    let (name, directory) = make_files_directory(volume, stamp)?;
    for (path, file) in payload {
        let path = Path::new(path);
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let made = parent.map(|parent| directory.make_below(parent, 0o755)).transpose()?;
        let parent = made.as_ref().unwrap_or(&directory);
        let mut out = parent.create_file(path.file_name().unwrap_or_default())?;
        out.write_all(&file.content)?;
        beneath::set_owner_and_mode(&out, file.uid, group, mode_of(file, group))?;
    }
    if let Some(group) = group {
        own_directories(&directory, group, depth(payload))?;
    }
    Ok(name)
}

fn make_files_directory(volume: &Dir, stamp: &str) -> io::Result<(OsString, Dir)> {
    for number in 0..MAX_NAMES {
        let name = match number {
            0 => OsString::from(format!("..{stamp}")),
            number => OsString::from(format!("..{stamp}.{number}")),
        };
        match volume.make_child(&name, 0o755) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((name, made?)),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

/// Members of the pod's group may read what its owner may.
fn mode_of(file: &File, group: Option<u32>) -> u32 {
    match group {
        Some(_) => file.mode | 0o440,
        None => file.mode,
    }
}

/// How many directories deep the files of a payload lie. Nothing is looked for deeper than that.
fn depth(payload: &Payload) -> usize {
    payload.keys().map(|path| path.matches('/').count()).max().unwrap_or(0)
}

fn own_directories(directory: &Dir, group: u32, depth: usize) -> io::Result<()> {
    directory.set_group(group)?;
    directory.set_mode(0o2775)?;
    if depth == 0 {
        return Ok(());
    }
    for (name, kind) in directory.entries()? {
        if kind == FileType::Directory {
            own_directories(&directory.child(&name)?, group, depth - 1)?;
        }
    }
    Ok(())
}

/// Makes `..data` lead to the fresh directory.
fn switch(volume: &Dir, fresh: &OsStr) -> io::Result<()> {
    volume.remove(OsStr::new(DATA_NEXT))?;
    symlinkat(fresh, volume, DATA_NEXT)?;
    if renameat(volume, DATA_NEXT, volume, DATA).is_ok() {
        return Ok(());
    }
    // A link replaces anything but a directory, which no writer leaves there.
    volume.remove(OsStr::new(DATA))?;
    Ok(renameat(volume, DATA_NEXT, volume, DATA)?)
}

/// Whether the directory has exactly these files.
fn holds(directory: &Dir, payload: &Payload, group: Option<u32>) -> bool {
    let mut found = BTreeSet::new();
    collect(directory, "", depth(payload), &mut found).is_ok()
        && found.len() == payload.len()
        && payload
            .iter()
            .all(|(path, file)| found.contains(path) && is_same(directory, path, file, group).unwrap_or(false))
}

fn is_same(directory: &Dir, path: &str, file: &File, group: Option<u32>) -> io::Result<bool> {
    let open = directory.open_file(Path::new(path))?;
    let stat = fstat(&open)?;
    let owned = file.uid.is_none_or(|uid| uid == stat.st_uid) && group.is_none_or(|group| group == stat.st_gid);
    if stat.st_mode & 0o7777 != mode_of(file, group) || !owned || stat.st_size != file.content.len() as i64 {
        return Ok(false);
    }
    let mut content = Vec::with_capacity(file.content.len());
    open.take(file.content.len() as u64 + 1).read_to_end(&mut content)?;
    Ok(content == file.content)
}

/// The paths of all files; a directory that is too deep to have any counts as one.
fn collect(directory: &Dir, prefix: &str, depth: usize, found: &mut BTreeSet<String>) -> io::Result<()> {
    for (name, kind) in directory.entries()? {
        let path = format!("{prefix}{}", name.to_string_lossy());
        match kind {
            FileType::Directory if depth > 0 => {
                collect(&directory.child(&name)?, &format!("{path}/"), depth - 1, found)?;
            }
            _ => _ = found.insert(path),
        }
    }
    Ok(())
}

/// The names that the volume shows: the first part of every path.
fn visible(payload: &Payload) -> BTreeSet<&str> {
    payload.keys().filter_map(|path| path.split('/').next()).collect()
}

fn target_of(name: &str) -> OsString {
    OsString::from(format!("{DATA}/{name}"))
}

/// Whether every visible name is its link, and there is no other.
fn shows(volume: &Dir, payload: &Payload) -> bool {
    let wanted = visible(payload);
    let linked = |name: &&str| {
        volume
            .read_link(OsStr::new(name))
            .is_ok_and(|target| target == target_of(name))
    };
    let names = volume.entries().unwrap_or_default().into_iter().map(|(name, _)| name);
    let shown = names.filter(|name| !is_own(name)).count();
    shown == wanted.len() && wanted.iter().all(linked)
}

fn is_own(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("..")
}

/// Makes the visible names those of the payload.
fn link_visible(volume: &Dir, payload: &Payload) -> io::Result<()> {
    let wanted = visible(payload);
    for (name, _) in volume.entries()? {
        if !is_own(&name) && !name.to_str().is_some_and(|name| wanted.contains(name)) {
            volume.remove(&name)?;
        }
    }
    for name in wanted {
        let (link, target) = (OsStr::new(name), target_of(name));
        if volume.read_link(link).is_ok_and(|found| found == target) {
            continue;
        }
        volume.remove(link)?;
        symlinkat(&target, volume, link)?;
    }
    Ok(())
}

/// Removes every directory of files but one, and whatever else stands under a writer's name.
fn remove_all_but(volume: &Dir, kept: Option<&OsStr>) -> io::Result<()> {
    for (name, _) in volume.entries()? {
        if is_own(&name) && name != DATA && Some(name.as_os_str()) != kept {
            volume.remove(&name)?;
        }
    }
    Ok(())
}
