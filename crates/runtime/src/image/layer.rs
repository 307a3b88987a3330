//! Unpacking a layer's tar into a directory of its own, in the form overlayfs stacks.
//!
//! A layer comes from outside. It is unpacked by a process that has nothing but the layer's directory (`unpacker`), and
//! even so every path is looked up inside that directory only, what is not a file-system object we know is refused,
//! and everything is bounded.

mod node;

use std::cell::Cell;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, XattrFlags};
use serde::{Deserialize, Serialize};
use tar::{Entry, EntryType};

use super::limits::{MAX_DIRECTORY_NAME_BYTES, MAX_EXTENSION_BYTES, MAX_LAYER_BYTES, MAX_LAYER_INODES, MAX_PATH_DEPTH};
use super::room::Room;
use crate::within;

const WHITEOUT_PREFIX: &[u8] = b".wh.";
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";
/// Bookkeeping of a storage driver long gone, still found in old images.
const DRIVER_PREFIX: &[u8] = b".wh..wh.";

/// How overlayfs knows a directory that hides those of the layers below.
pub const OPAQUE_XATTR: &str = "trusted.overlay.opaque";

const SPARSE_PREFIX: &str = "GNU.sparse.";

/// How much is written, and how many files are made, before the room on the disk is looked at again.
const BYTES_BETWEEN_LOOKS: u64 = 32 << 20;
const INODES_BETWEEN_LOOKS: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("{path:?}: {source}")]
    Entry { path: PathBuf, source: io::Error },
    #[error("{0:?} is outside the layer")]
    Outside(PathBuf),
    #[error("{0:?} is {1}, which no layer may have")]
    Forbidden(PathBuf, &'static str),
    #[error("{0:?} is more than {MAX_PATH_DEPTH} directories deep")]
    TooDeep(PathBuf),
    #[error("the layer has more than {0} files and directories")]
    TooManyInodes(u64),
    #[error("the names of the layer's directories take more than {MAX_DIRECTORY_NAME_BYTES} bytes")]
    TooManyNames,
    #[error("the layer unpacks to more than {0} bytes")]
    TooLarge(u64),
    #[error("failed to read the layer: {0}")]
    Read(#[from] io::Error),
}

/// What one layer may take.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// The bytes of all files.
    pub bytes: u64,
    pub inodes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bytes: MAX_LAYER_BYTES,
            inodes: MAX_LAYER_INODES,
        }
    }
}

impl Bounds {
    /// The bounds where there is only so much room.
    pub fn within(room: Room) -> Self {
        Self {
            bytes: MAX_LAYER_BYTES.min(room.bytes),
            inodes: MAX_LAYER_INODES.min(room.inodes),
        }
    }
}

/// Marks a directory as hiding those of the layers below. Takes a privilege that unpackers do not have.
pub fn set_opaque(directory: impl AsFd) -> io::Result<()> {
    let flags = XattrFlags::empty();
    Ok(rustix::fs::fsetxattr(directory, OPAQUE_XATTR, b"y", flags)?)
}

/// Unpacks a tar stream to its end into the directory `root`. `below` are the directories of the layers it stands on,
/// topmost first: a hard link may lead there, and a parent directory that the layer leaves out has its owner and mode
/// from there. `opaque` is given the directories that hide those below.
///
/// Answers how many bytes of files there were.
pub fn unpack(
    tar: impl Read,
    root: BorrowedFd<'_>,
    below: &[OwnedFd],
    bounds: &Bounds,
    opaque: &mut dyn FnMut(OwnedFd) -> io::Result<()>,
) -> Result<u64, LayerError> {
    let mut layer = Layer {
        root,
        below,
        bounds,
        opaque,
        bytes: 0,
        inodes: 0,
        looked_at: (0, 0),
        directory_times: Vec::new(),
        directory_name_bytes: 0,
    };
    let allowance = Cell::new(0);
    let mut archive = tar::Archive::new(Allowed {
        inner: tar,
        allowance: &allowance,
    });
    let mut entries = archive.entries()?;
    loop {
        // Between files there are headers, which are kept in memory.
        allowance.set(MAX_EXTENSION_BYTES);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry?;
        allowance.set(u64::MAX);
        let path = entry.path()?.into_owned();
        layer.add(&mut entry, &path)?;
    }
    layer.finish()?;
    Ok(layer.bytes)
}

/// A stream of which only so much may be read until the allowance is renewed.
pub struct Allowed<'a, R> {
    pub inner: R,
    pub allowance: &'a Cell<u64>,
}

impl<R: Read> Read for Allowed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        match self.allowance.get().checked_sub(length as u64) {
            Some(left) => self.allowance.set(left),
            None => {
                let message = format!("an entry's headers are larger than {MAX_EXTENSION_BYTES} bytes");
                return Err(io::Error::other(message));
            }
        }
        Ok(length)
    }
}

struct Layer<'a> {
    root: BorrowedFd<'a>,
    below: &'a [OwnedFd],
    bounds: &'a Bounds,
    opaque: &'a mut dyn FnMut(OwnedFd) -> io::Result<()>,
    bytes: u64,
    inodes: u64,
    /// The bytes and inodes at which the room on the disk was looked at last.
    looked_at: (u64, u64),
    /// Set last, because filling a directory changes its time.
    directory_times: Vec<(PathBuf, i64)>,
    directory_name_bytes: usize,
}

impl Layer<'_> {
    fn add(&mut self, entry: &mut Entry<'_, impl Read>, path: &Path) -> Result<(), LayerError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let path = inside(path)?;
        refuse_strange(entry, &path, kind)?;
        let Some(name) = path.file_name().map(|name| name.to_owned()) else {
            return self.set_root(entry);
        };
        let failed = |source: io::Error| LayerError::Entry {
            path: path.clone(),
            source,
        };
        let parent = self.parent(path.parent().unwrap_or(Path::new("")))?;
        if name.as_bytes().starts_with(WHITEOUT_PREFIX) {
            self.count(1, 0)?;
            return self.whiteout(&parent, name.as_bytes()).map_err(failed);
        }
        self.count(1, entry.size())?;
        let name = Path::new(&name);
        clear_place(&parent, name, kind).map_err(failed)?;
        if kind == EntryType::Link {
            let target = inside(&entry.link_name()?.unwrap_or_default())?;
            // A link shares the owner and mode of what it links to.
            return self.link(&target, &parent, name).map_err(|error| error.at(&path));
        }
        node::make(&parent, name, entry, kind).map_err(failed)?;
        if kind == EntryType::Directory {
            self.remember_time(path, node::mtime(entry))?;
        }
        Ok(())
    }

    /// Counts what is about to be made.
    fn count(&mut self, inodes: u64, bytes: u64) -> Result<(), LayerError> {
        self.inodes += inodes;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.inodes > self.bounds.inodes {
            return Err(LayerError::TooManyInodes(self.bounds.inodes));
        }
        if self.bytes > self.bounds.bytes {
            return Err(LayerError::TooLarge(self.bounds.bytes));
        }
        // Others use the disk as well, so what was there at first may not be there any more.
        let (bytes_then, inodes_then) = self.looked_at;
        if self.bytes - bytes_then > BYTES_BETWEEN_LOOKS || self.inodes - inodes_then > INODES_BETWEEN_LOOKS {
            self.looked_at = (self.bytes, self.inodes);
            Room::on(self.root)?.check(bytes)?;
        }
        Ok(())
    }

    fn remember_time(&mut self, path: PathBuf, seconds: i64) -> Result<(), LayerError> {
        self.directory_name_bytes += path.as_os_str().len() + size_of::<(PathBuf, i64)>();
        if self.directory_name_bytes > MAX_DIRECTORY_NAME_BYTES {
            return Err(LayerError::TooManyNames);
        }
        self.directory_times.push((path, seconds));
        Ok(())
    }

    /// The layer's own top directory, which many tars list as `./`.
    fn set_root(&self, entry: &Entry<'_, impl Read>) -> Result<(), LayerError> {
        if entry.header().entry_type() != EntryType::Directory {
            return Err(LayerError::Forbidden(PathBuf::from("/"), "not a directory"));
        }
        let mode = entry.header().mode()? & 0o7777;
        rustix::fs::fchmod(self.root, Mode::from_raw_mode(mode)).map_err(io::Error::from)?;
        Ok(())
    }

    /// Opens a directory of the layer, making it like that of the layers below where this one leaves it out.
    fn parent(&mut self, path: &Path) -> Result<OwnedFd, LayerError> {
        let failed = |source: io::Error| LayerError::Entry {
            path: path.to_owned(),
            source,
        };
        match within::open(self.root, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result.map_err(failed),
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(io::ErrorKind::NotFound.into()));
        };
        let above = self.parent(above)?;
        self.count(1, 0)?;
        let like = self.below.iter().find_map(|dir| stat_in(dir.as_fd(), path));
        let like = like.filter(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        node::make_parent(&above, Path::new(name), like.as_ref()).map_err(failed)
    }

    fn link(&mut self, target: &Path, parent: &OwnedFd, name: &Path) -> Result<(), LayerError> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no {} to link to", target.display()));
        let Some(target_name) = target.file_name() else {
            return Err(missing().into());
        };
        let dir = within::open(self.root, target.parent().unwrap_or(Path::new("")));
        let dir = match dir {
            Ok(dir) if exists(&dir, Path::new(target_name)) => dir,
            _ => self.copy_up(target)?,
        };
        let flags = AtFlags::empty();
        rustix::fs::linkat(&dir, target_name, parent, name, flags).map_err(io::Error::from)?;
        Ok(())
    }

    /// Copies a file of a layer below into this one, so that it can be linked to here. Answers its directory.
    fn copy_up(&mut self, path: &Path) -> Result<OwnedFd, LayerError> {
        let found = self
            .below
            .iter()
            .find_map(|dir| stat_in(dir.as_fd(), path).map(|stat| (dir, stat)));
        let Some((dir, stat)) = found.filter(|(_, stat)| FileType::from_raw_mode(stat.st_mode).is_file()) else {
            let message = format!("no {} to link to", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, message).into());
        };
        self.count(1, u64::try_from(stat.st_size).unwrap_or(0))?;
        let mut source = within::open_file(dir.as_fd(), path)?;
        let parent = self.parent(path.parent().unwrap_or(Path::new("")))?;
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut copy = node::create(&parent, Path::new(name))?;
        node::copy(&mut source, &mut copy)?;
        node::own(&copy, stat.st_uid, stat.st_gid, stat.st_mode)?;
        rustix::fs::futimens(&copy, &node::times(stat.st_mtime)).map_err(io::Error::from)?;
        Ok(parent)
    }

    /// Hides what the layers below have: a name, or everything in a directory.
    fn whiteout(&mut self, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        if name == OPAQUE_WHITEOUT {
            return (self.opaque)(node::open_directory(parent, Path::new("."))?);
        }
        if name.starts_with(DRIVER_PREFIX) {
            return Ok(());
        }
        let hidden = &name[WHITEOUT_PREFIX.len()..];
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(io::Error::other("it hides no name"));
        }
        let hidden = Path::new(std::ffi::OsStr::from_bytes(hidden));
        clear_place(parent, hidden, EntryType::Char)?;
        let (kind, mode) = (FileType::CharacterDevice, Mode::empty());
        Ok(rustix::fs::mknodat(parent, hidden, kind, mode, 0)?)
    }

    fn finish(&self) -> Result<(), LayerError> {
        for (path, seconds) in self.directory_times.iter().rev() {
            // A later entry of the layer may have taken its place.
            let Ok(place) = within::open_directory(self.root, path) else {
                continue;
            };
            rustix::fs::futimens(&place, &node::times(*seconds)).map_err(|error| LayerError::Entry {
                path: path.clone(),
                source: error.into(),
            })?;
        }
        Ok(())
    }
}

impl LayerError {
    /// Says at which entry an error without a path has come up.
    fn at(self, path: &Path) -> Self {
        match self {
            Self::Read(source) => Self::Entry {
                path: path.to_owned(),
                source,
            },
            other => other,
        }
    }
}

/// The path relative to the layer. Leading slashes and dots mean nothing; going up is refused.
fn inside(path: &Path) -> Result<PathBuf, LayerError> {
    let mut clean = PathBuf::new();
    let mut depth = 0;
    for component in path.components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::CurDir | Component::RootDir => continue,
            Component::ParentDir | Component::Prefix(_) => return Err(LayerError::Outside(path.to_owned())),
        }
        depth += 1;
        if depth > MAX_PATH_DEPTH {
            return Err(LayerError::TooDeep(clean));
        }
    }
    Ok(clean)
}

/// Refuses what other programs would read as something else.
fn refuse_strange(entry: &mut Entry<'_, impl Read>, path: &Path, kind: EntryType) -> Result<(), LayerError> {
    let has_contents = matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse);
    if entry.size() > 0 && !has_contents {
        return Err(LayerError::Forbidden(
            path.to_owned(),
            "a link or directory with contents",
        ));
    }
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(());
    };
    for extension in extensions {
        if extension?.key().is_ok_and(|key| key.starts_with(SPARSE_PREFIX)) {
            return Err(LayerError::Forbidden(
                path.to_owned(),
                "a sparse file in the pax format",
            ));
        }
    }
    Ok(())
}

fn stat_in(dir: BorrowedFd<'_>, path: &Path) -> Option<rustix::fs::Stat> {
    rustix::fs::fstat(within::open(dir, path).ok()?).ok()
}

fn exists(dir: &OwnedFd, name: &Path) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Removes what an earlier entry of the same layer left at a name, except a directory that stays one.
fn clear_place(parent: &OwnedFd, name: &Path, kind: EntryType) -> io::Result<()> {
    let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Ok(());
    };
    match (
        FileType::from_raw_mode(stat.st_mode).is_dir(),
        kind == EntryType::Directory,
    ) {
        (true, true) => Ok(()),
        (false, _) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
        // Fails for a directory that is not empty: no sane layer replaces one.
        (true, false) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?),
    }
}

#[cfg(test)]
mod tests;
