//! Making the single files of a layer: what an entry of its tar describes, in a directory that is known to be inside.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use tar::{Entry, EntryType};

const XATTR_PREFIX: &str = "SCHILY.xattr.";
const COPY_BYTES: usize = 128 << 10;

/// Makes what an entry describes, except hard links.
pub fn make(parent: &OwnedFd, name: &Path, entry: &mut Entry<'_, impl Read>, kind: EntryType) -> io::Result<()> {
    let (uid, gid) = (owner(entry, Id::User)?, owner(entry, Id::Group)?);
    match kind {
        EntryType::Directory => {
            let directory = make_directory(parent, name)?;
            own(&directory, uid, gid, entry.header().mode()?)?;
            set_xattrs(&directory, entry)
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let mut file = create(parent, name)?;
            copy(entry, &mut file)?;
            own(&file, uid, gid, entry.header().mode()?)?;
            // A change of owner takes capabilities away.
            set_xattrs(&file, entry)?;
            Ok(rustix::fs::futimens(&file, &times(mtime(entry)))?)
        }
        EntryType::Symlink => {
            let target = entry.link_name()?.unwrap_or_default();
            rustix::fs::symlinkat(&*target, parent, name)?;
            set_node(parent, name, entry, (uid, gid), None)
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            make_node(parent, name, entry, kind)?;
            let mode = entry.header().mode()?;
            set_node(parent, name, entry, (uid, gid), Some(mode))
        }
        _ => Err(io::Error::other(format!(
            "a kind of entry that no layer may have: {kind:?}"
        ))),
    }
}

fn make_directory(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => open_directory(parent, name),
        Err(error) => Err(error.into()),
    }
}

/// Makes a directory that the layer implies.
pub fn make_parent(above: &OwnedFd, name: &Path, like: Option<&rustix::fs::Stat>) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o755))?;
    let made = open_directory(above, name)?;
    if let Some(stat) = like {
        own(&made, stat.st_uid, stat.st_gid, stat.st_mode)?;
    }
    Ok(made)
}

pub fn open_directory(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

pub fn create(parent: &OwnedFd, name: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?.into())
}

pub fn copy(from: &mut impl Read, to: &mut std::fs::File) -> io::Result<()> {
    use io::Write;
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length])?,
        }
    }
}

fn make_node(parent: &OwnedFd, name: &Path, entry: &Entry<'_, impl Read>, kind: EntryType) -> io::Result<()> {
    let number = |part: io::Result<Option<u32>>| Ok::<_, io::Error>(part?.unwrap_or(0));
    let (major, minor) = (
        number(entry.header().device_major())?,
        number(entry.header().device_minor())?,
    );
    let (kind, device) = match kind {
        EntryType::Fifo => (FileType::Fifo, 0),
        EntryType::Block => (FileType::BlockDevice, rustix::fs::makedev(major, minor)),
        // A character device 0:0 would be taken for a whiteout.
        _ if (major, minor) == (0, 0) => return Err(io::Error::other("a device with the number of a whiteout")),
        _ => (FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
    };
    let mode = Mode::from_raw_mode(0o600);
    Ok(rustix::fs::mknodat(parent, name, kind, mode, device)?)
}

enum Id {
    User,
    Group,
}

/// The user or group of an entry. Some writers leave the fields of root empty.
fn owner(entry: &Entry<'_, impl Read>, id: Id) -> io::Result<u32> {
    let header = entry.header();
    let (field, id) = match id {
        Id::User => (&header.as_old().uid, header.uid()),
        Id::Group => (&header.as_old().gid, header.gid()),
    };
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Ok(0);
    }
    match u32::try_from(id?) {
        // The largest stands for leaving the owner as it is.
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(io::Error::other("an owner that the system has no number for")),
    }
}

/// Gives a file or directory its owner and mode, in this order: a change of owner takes set-user-id away.
pub fn own(fd: impl AsFd, uid: u32, gid: u32, mode: u32) -> io::Result<()> {
    rustix::fs::fchown(&fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    Ok(rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o7777))?)
}

/// The same, and the time, for what cannot be opened: links, which have no mode, devices and pipes.
fn set_node(
    parent: &OwnedFd,
    name: &Path,
    entry: &Entry<'_, impl Read>,
    (uid, gid): (u32, u32),
    mode: Option<u32>,
) -> io::Result<()> {
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(parent, name, uid, gid, nofollow)?;
    if let Some(mode) = mode {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
    }
    Ok(rustix::fs::utimensat(parent, name, &times(mtime(entry)), nofollow)?)
}

/// The attributes an image may set. Others belong to the host: overlayfs itself, security modules.
fn is_allowed(attribute: &str) -> bool {
    attribute == "security.capability" || attribute.starts_with("user.") && !attribute.starts_with("user.overlay.")
}

fn set_xattrs(file: impl AsFd, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(());
    };
    for extension in extensions {
        let extension = extension?;
        let Some(attribute) = extension.key().ok().and_then(|key| key.strip_prefix(XATTR_PREFIX)) else {
            continue;
        };
        if !is_allowed(attribute) {
            continue;
        }
        match rustix::fs::fsetxattr(&file, attribute, extension.value_bytes(), XattrFlags::empty()) {
            // A file system without user attributes loses nothing that a program was promised.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub fn mtime(entry: &Entry<'_, impl Read>) -> i64 {
    entry
        .header()
        .mtime()
        .ok()
        .and_then(|seconds| i64::try_from(seconds).ok())
        .unwrap_or(0)
}

pub fn times(seconds: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
