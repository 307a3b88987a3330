//! Unpacking a layer's tar into a directory of its own, in the form overlayfs stacks.
//!
//! A layer comes from outside and is unpacked by root: every path is looked up inside the layer's directory only,
//! what is not a file-system object we know is refused, and sizes are bounded.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use tar::{Entry, EntryType};

use crate::within::{self, Target};

/// The most a layer may unpack to.
const MAX_LAYER_BYTES: u64 = 64 << 30;
const MAX_LAYER_ENTRIES: u64 = 4_000_000;

const WHITEOUT_PREFIX: &[u8] = b".wh.";
const OPAQUE_WHITEOUT: &[u8] = b".wh..wh..opq";
/// Bookkeeping of a storage driver long gone, still found in old images.
const DRIVER_PREFIX: &[u8] = b".wh..wh.";

/// How overlayfs knows a directory that hides those of the layers below.
const OPAQUE_XATTR: &str = "trusted.overlay.opaque";

/// The attributes an image may set. Others belong to the host: overlayfs itself, security modules.
const ALLOWED_XATTRS: &[&str] = &["security.capability", "user."];
const XATTR_PREFIX: &str = "SCHILY.xattr.";

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("{path:?}: {source}")]
    Entry { path: PathBuf, source: io::Error },
    #[error("{0:?} is outside the layer")]
    Outside(PathBuf),
    #[error("{0:?} is a {1} that no layer may have")]
    Forbidden(PathBuf, &'static str),
    #[error("the layer has more than {MAX_LAYER_ENTRIES} entries")]
    TooManyEntries,
    #[error("the layer unpacks to more than {0} bytes")]
    TooLarge(u64),
    #[error("reading the layer: {0}")]
    Read(#[from] io::Error),
}

/// Unpacks a tar stream to its end. `below` are the directories of the layers it stands on, topmost first: a hard link
/// may lead there, and a parent directory that the layer leaves out has its owner and mode from there.
///
/// Answers how many bytes of files there were.
pub fn unpack(tar: impl Read, into: &Path, below: &[PathBuf]) -> Result<u64, LayerError> {
    unpack_at_most(MAX_LAYER_BYTES, tar, into, below)
}

/// The same with another bound for the bytes of all files.
pub fn unpack_at_most(max_bytes: u64, tar: impl Read, into: &Path, below: &[PathBuf]) -> Result<u64, LayerError> {
    let root: OwnedFd = std::fs::File::open(into)?.into();
    let below = below
        .iter()
        .map(|dir| Ok(std::fs::File::open(dir)?.into()))
        .collect::<io::Result<Vec<_>>>()?;
    let mut layer = Layer {
        root,
        below,
        max_bytes,
        bytes: 0,
        directory_times: Vec::new(),
    };
    let mut archive = tar::Archive::new(tar);
    archive.set_ignore_zeros(true);
    let mut count = 0;
    for entry in archive.entries()? {
        let mut entry = entry?;
        count += 1;
        if count > MAX_LAYER_ENTRIES {
            return Err(LayerError::TooManyEntries);
        }
        let path = entry.path()?.into_owned();
        layer.add(&mut entry, &path)?;
    }
    layer.finish()?;
    Ok(layer.bytes)
}

struct Layer {
    root: OwnedFd,
    below: Vec<OwnedFd>,
    max_bytes: u64,
    bytes: u64,
    /// Set last, because filling a directory changes its time.
    directory_times: Vec<(PathBuf, i64)>,
}

impl Layer {
    fn add(&mut self, entry: &mut Entry<'_, impl Read>, path: &Path) -> Result<(), LayerError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let path = inside(path)?;
        let Some(name) = path.file_name().map(|name| name.to_owned()) else {
            return self.set_root(entry);
        };
        let failed = |source: io::Error| LayerError::Entry {
            path: path.clone(),
            source,
        };
        let parent = self.parent(path.parent().unwrap_or(Path::new(""))).map_err(failed)?;
        if name.as_bytes().starts_with(WHITEOUT_PREFIX) {
            return whiteout(&parent, name.as_bytes()).map_err(failed);
        }
        self.bytes += entry.size();
        if self.bytes > self.max_bytes {
            return Err(LayerError::TooLarge(self.max_bytes));
        }
        let name = Path::new(&name);
        clear_place(&parent, name, kind).map_err(failed)?;
        match kind {
            EntryType::Directory => make_directory(&parent, name).map_err(failed)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                write_file(&parent, name, entry).map_err(failed)?;
            }
            EntryType::Symlink => {
                let target = entry.link_name()?.unwrap_or_default();
                rustix::fs::symlinkat(&*target, &parent, name).map_err(|error| failed(error.into()))?;
            }
            EntryType::Link => {
                let target = inside(&entry.link_name()?.unwrap_or_default())?;
                // A link shares the owner and mode of what it links to.
                return self.link(&target, &parent, name).map_err(failed);
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                make_node(&parent, name, entry, kind).map_err(failed)?;
            }
            _ => return Err(LayerError::Forbidden(path, "kind of entry")),
        }
        set_attributes(&parent, name, entry, kind).map_err(failed)?;
        if kind == EntryType::Directory {
            self.directory_times.push((path, mtime(entry)));
        }
        Ok(())
    }

    /// The layer's own top directory, which many tars list as `./`.
    fn set_root(&self, entry: &Entry<'_, impl Read>) -> Result<(), LayerError> {
        let mode = entry.header().mode()? & 0o7777;
        rustix::fs::fchmod(&self.root, Mode::from_raw_mode(mode)).map_err(io::Error::from)?;
        Ok(())
    }

    /// Opens a directory of the layer, making it like that of the layers below where this one leaves it out.
    fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        match within::open(self.root.as_fd(), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        if let Some(above) = path.parent() {
            self.parent(above)?;
        }
        let made = within::ensure(self.root.as_fd(), path, Target::Directory)?;
        if let Some(stat) = self.below.iter().find_map(|dir| stat_in(dir.as_fd(), path)) {
            let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            let empty = Path::new("");
            rustix::fs::chownat(&made, empty, Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
            within::chmod(&made, stat.st_mode & 0o7777)?;
        }
        Ok(made)
    }

    fn link(&self, target: &Path, parent: &OwnedFd, name: &Path) -> io::Result<()> {
        let source = match within::open_itself(self.root.as_fd(), target) {
            Ok(source) => source,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.copy_up(target)?,
            Err(error) => return Err(error),
        };
        let itself = Path::new("");
        Ok(rustix::fs::linkat(&source, itself, parent, name, AtFlags::EMPTY_PATH)?)
    }

    /// Copies a file of a layer below into this one, so that it can be linked to here.
    fn copy_up(&self, path: &Path) -> io::Result<OwnedFd> {
        let found = self
            .below
            .iter()
            .find_map(|dir| stat_in(dir.as_fd(), path).map(|stat| (dir, stat)));
        let Some((dir, stat)) = found.filter(|(_, stat)| FileType::from_raw_mode(stat.st_mode).is_file()) else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("no {} to link to", path.display()),
            ));
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let resolve = rustix::fs::ResolveFlags::IN_ROOT | rustix::fs::ResolveFlags::NO_MAGICLINKS;
        let mut source = std::fs::File::from(rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)?);
        let parent = self.parent(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut copy = create(&parent, Path::new(name))?;
        io::copy(&mut source, &mut copy)?;
        rustix::fs::fchown(
            &copy,
            Some(Uid::from_raw(stat.st_uid)),
            Some(Gid::from_raw(stat.st_gid)),
        )?;
        rustix::fs::fchmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        within::open(parent.as_fd(), Path::new(name))
    }

    fn finish(&self) -> Result<(), LayerError> {
        for (path, seconds) in self.directory_times.iter().rev() {
            let failed = |source: io::Error| LayerError::Entry {
                path: path.clone(),
                source,
            };
            let place = match within::open(self.root.as_fd(), path) {
                // A later entry of the layer took its place.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                result => result.map_err(failed)?,
            };
            set_time(&place, Path::new(""), *seconds, AtFlags::EMPTY_PATH).map_err(failed)?;
        }
        Ok(())
    }
}

/// The path relative to the layer. Leading slashes and dots mean nothing; going up is refused.
fn inside(path: &Path) -> Result<PathBuf, LayerError> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(LayerError::Outside(path.to_owned())),
        }
    }
    Ok(clean)
}

fn stat_in(dir: BorrowedFd<'_>, path: &Path) -> Option<rustix::fs::Stat> {
    rustix::fs::fstat(within::open(dir, path).ok()?).ok()
}

/// Hides what the layers below have: a name, or everything in a directory.
fn whiteout(parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    if name == OPAQUE_WHITEOUT {
        let directory = rustix::fs::openat(parent, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        return Ok(rustix::fs::fsetxattr(
            &directory,
            OPAQUE_XATTR,
            b"y",
            XattrFlags::empty(),
        )?);
    }
    if name.starts_with(DRIVER_PREFIX) {
        return Ok(());
    }
    let hidden = Path::new(std::ffi::OsStr::from_bytes(&name[WHITEOUT_PREFIX.len()..]));
    clear_place(parent, hidden, EntryType::Char)?;
    Ok(rustix::fs::mknodat(
        parent,
        hidden,
        FileType::CharacterDevice,
        Mode::empty(),
        0,
    )?)
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

fn make_directory(parent: &OwnedFd, name: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn create(parent: &OwnedFd, name: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?.into())
}

fn write_file(parent: &OwnedFd, name: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
    let mut file = create(parent, name)?;
    io::copy(entry, &mut file).map(drop)
}

fn make_node(parent: &OwnedFd, name: &Path, entry: &Entry<'_, impl Read>, kind: EntryType) -> io::Result<()> {
    let number = |part: io::Result<Option<u32>>| Ok::<_, io::Error>(part?.unwrap_or(0));
    let (major, minor) = (
        number(entry.header().device_major())?,
        number(entry.header().device_minor())?,
    );
    let kind = match kind {
        EntryType::Block => FileType::BlockDevice,
        EntryType::Fifo => FileType::Fifo,
        // A character device 0:0 would be taken for a whiteout.
        _ if (major, minor) == (0, 0) => return Err(io::Error::other("a device with the number of a whiteout")),
        _ => FileType::CharacterDevice,
    };
    let device = if kind == FileType::Fifo {
        0
    } else {
        rustix::fs::makedev(major, minor)
    };
    Ok(rustix::fs::mknodat(
        parent,
        name,
        kind,
        Mode::from_raw_mode(0o600),
        device,
    )?)
}

fn set_attributes(parent: &OwnedFd, name: &Path, entry: &mut Entry<'_, impl Read>, kind: EntryType) -> io::Result<()> {
    // Some writers leave the fields of root empty.
    let id = |id: io::Result<u64>| u32::try_from(id.unwrap_or(0)).map_err(io::Error::other);
    let (uid, gid) = (id(entry.header().uid())?, id(entry.header().gid())?);
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(
        parent,
        name,
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
        nofollow,
    )?;
    if kind != EntryType::Symlink {
        // Set after the owner, because a change of owner takes set-user-id away.
        let mode = Mode::from_raw_mode(entry.header().mode()? & 0o7777);
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
    }
    if matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::Directory) {
        set_xattrs(parent, name, entry)?;
    }
    set_time(parent, name, mtime(entry), nofollow)
}

fn set_xattrs(parent: &OwnedFd, name: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(());
    };
    for extension in extensions {
        let extension = extension?;
        let Some(attribute) = extension.key().ok().and_then(|key| key.strip_prefix(XATTR_PREFIX)) else {
            continue;
        };
        if !ALLOWED_XATTRS.iter().any(|allowed| attribute.starts_with(allowed)) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        match rustix::fs::fsetxattr(&file, attribute, extension.value_bytes(), XattrFlags::empty()) {
            // A file system without user attributes loses nothing that a program was promised.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn mtime(entry: &Entry<'_, impl Read>) -> i64 {
    entry
        .header()
        .mtime()
        .ok()
        .and_then(|seconds| i64::try_from(seconds).ok())
        .unwrap_or(0)
}

fn set_time(dir: &OwnedFd, name: &Path, seconds: i64, flags: AtFlags) -> io::Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(rustix::fs::utimensat(dir, name, &times, flags)?)
}

#[cfg(test)]
mod tests;
