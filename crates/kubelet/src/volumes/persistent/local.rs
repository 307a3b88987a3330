//! PersistentVolumes that are a directory or a block device of one node.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::mount::MountFlags;

use super::{PersistentSetUp, PersistentType, checked_path, open_failed, provisioned};
use crate::beneath::{self, Dir};
use crate::claims::{LocalSource, PersistentVolume, VolumeMode};
use crate::volumes::format::format;
use crate::volumes::mounts::{self, MountOptions};
use crate::volumes::{MountSource, SetUpError, ownership};

/// What a block device is mounted as if its volume does not say.
const DEFAULT_FILE_SYSTEM: &str = "ext4";

pub struct LocalPersistent;

impl PersistentType for LocalPersistent {
    fn field(&self) -> &'static str {
        "local"
    }

    fn directory(&self) -> &'static str {
        "local-volume"
    }

    fn is_type_of(&self, volume: &PersistentVolume) -> bool {
        volume.spec.local.is_some()
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn set_up(&self, set_up: &PersistentSetUp<'_>, place: &Dir) -> Result<MountSource, SetUpError> {
        let volume = &set_up.bound.volume;
        let source = volume.spec.local.clone().unwrap_or_default();
        let path = checked_path(&source.path)?;
        if is_mounted(place, &set_up.path)? {
            return Ok(MountSource::Path(set_up.path.clone()));
        }
        let opened = match volume.is_provisioned() {
            true => provisioned::open_or_make(set_up.request.paths, volume)?.into(),
            // An administrator's links are followed, such as those below /dev/disk.
            false => open(path).map_err(open_failed(path))?,
        };
        let stat = fstat(&opened).map_err(|error| open_failed(path)(error.into()))?;
        match (volume.spec.volume_mode, FileType::from_raw_mode(stat.st_mode)) {
            (VolumeMode::Block, FileType::BlockDevice) => device(path, &opened).map(MountSource::Device),
            (VolumeMode::Block, _) => Err(SetUpError::NotABlockDevice(path.to_owned())),
            (VolumeMode::Filesystem, FileType::Directory) => bind(set_up, &opened, place),
            (VolumeMode::Filesystem, FileType::BlockDevice) => mount_device(set_up, &source, &opened, place),
            (VolumeMode::Filesystem, _) => Err(SetUpError::NotADirectory(path.to_owned())),
        }
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn is_mounted(place: &Dir, path: &Path) -> Result<bool, SetUpError> {
    beneath::is_mount_root(place).map_err(open_failed(path))
}

/// The device by the path that the kernel knows it by, so that the runtime gets what was looked at.
fn device(path: &Path, opened: &OwnedFd) -> Result<PathBuf, SetUpError> {
    std::fs::read_link(beneath::path_of(opened.as_fd())).map_err(open_failed(path))
}

/// Binds a directory to the pod's directory for the volume. Its owner is set before, so that what is bound is ready.
fn bind(set_up: &PersistentSetUp<'_>, source: &OwnedFd, place: &Dir) -> Result<MountSource, SetUpError> {
    let options = MountOptions::parse(&set_up.bound.volume.spec.mount_options, set_up.bound.read_only);
    if let Some(unknown) = options.data.first() {
        return Err(SetUpError::UnsupportedMountOption(unknown.clone()));
    }
    let directory = Dir::reopen(source.as_fd()).map_err(open_failed(&set_up.path))?;
    own(set_up, &directory)?;
    mounts::bind(source, place).map_err(mount_failed(&set_up.path))?;
    settle(set_up, options.flags)
}

/// Mounts the file system of a block device. An empty one is given a file system first, unless it is only to be read.
fn mount_device(
    set_up: &PersistentSetUp<'_>,
    source: &LocalSource,
    device: &OwnedFd,
    place: &Dir,
) -> Result<MountSource, SetUpError> {
    let options = MountOptions::parse(&set_up.bound.volume.spec.mount_options, set_up.bound.read_only);
    let kind = source.fs_type.as_deref().filter(|kind| !kind.is_empty());
    let kind = kind.unwrap_or(DEFAULT_FILE_SYSTEM);
    let path = PathBuf::from(&source.path);
    let mut mounted = mounts::mount_device(device, place, kind, &options);
    let has_none = matches!(&mounted, Err(error) if error.kind() == io::ErrorKind::InvalidInput);
    if has_none && !options.flags.contains(MountFlags::RDONLY) {
        format(device, kind).map_err(|source| SetUpError::Format {
            path: path.clone(),
            source,
        })?;
        mounted = mounts::mount_device(device, place, kind, &options);
    }
    mounted.map_err(|source| SetUpError::MountDevice {
        path,
        kind: kind.to_owned(),
        source,
    })?;
    let mounted = beneath::open_dir(set_up.request.paths.root(), &set_up.path).map_err(open_failed(&set_up.path))?;
    if let Err(error) = own(set_up, &mounted) {
        undo(set_up);
        return Err(error);
    }
    Ok(MountSource::Path(set_up.path.clone()))
}

/// Gives a fresh bind mount its options. One that cannot have them is undone, for it would be taken as set up later.
fn settle(set_up: &PersistentSetUp<'_>, flags: MountFlags) -> Result<MountSource, SetUpError> {
    let root = set_up.request.paths.root();
    let mounted = beneath::open_dir(root, &set_up.path).and_then(|mounted| {
        if !beneath::is_mount_root(&mounted)? {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        match flags.is_empty() {
            true => Ok(()),
            false => mounts::remount_bind(&mounted, flags),
        }
    });
    match mounted {
        Ok(()) => Ok(MountSource::Path(set_up.path.clone())),
        Err(error) => {
            undo(set_up);
            Err(mount_failed(&set_up.path)(error))
        }
    }
}

fn undo(set_up: &PersistentSetUp<'_>) {
    if let Err(error) = mounts::unmount_from(set_up.request.paths.root(), &set_up.path) {
        tracing::warn!(path = %set_up.path.display(), %error, "cannot unmount a volume that could not be set up");
    }
}

/// The pod's group gets the volume, unless the pod only reads it or another pod uses it already.
fn own(set_up: &PersistentSetUp<'_>, directory: &Dir) -> Result<(), SetUpError> {
    let Some(group) = set_up.request.fs_group() else {
        return Ok(());
    };
    if set_up.bound.read_only || !set_up.is_first {
        return Ok(());
    }
    let policy = &set_up.request.pod.spec.security_context.fs_group_change_policy;
    let only_on_mismatch = policy.as_deref() == Some("OnRootMismatch");
    ownership::set_group(directory, group, only_on_mismatch).map_err(|source| SetUpError::Own {
        path: set_up.path.clone(),
        source,
    })
}

fn mount_failed(path: &Path) -> impl Fn(io::Error) -> SetUpError {
    let path = path.to_owned();
    move |source| SetUpError::Mount {
        path: path.clone(),
        source,
    }
}
