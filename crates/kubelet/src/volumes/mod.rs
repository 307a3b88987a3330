//! A pod's volumes: what containers are given of the host, of objects and of images.
//!
//! A type of volume is one file and one row of [`TYPES`]: it says which field of a volume asks for it, what has to be
//! known before it is set up, and how it is set up, brought up to date, measured and torn down. The worker gathers what
//! [`needs`] names, then calls [`set_up`]; everything here blocks on the file system and talks to nobody. What CSI drivers
//! mount is mounted by then (`crate::csi`).
//!
//! What is set up stands below the pod's directory under upstream's name of its type, so that a kubelet that starts
//! finds it again ([`reconstruct`]) without having written anything down.

mod atomic;
mod claim;
mod config_map;
mod csi;
mod downward_api;
mod driver_error;
mod empty_dir;
mod ephemeral;
mod error;
mod figures;
mod format;
mod host_path;
mod image;
pub mod mounts;
pub mod ownership;
mod payload;
mod persistent;
mod projected;
mod reconstruct;
mod secret;
pub mod stats;
pub mod subpath;
#[cfg(test)]
mod tests;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::claims::{BoundVolume, ClaimReference};
use crate::container::fields::Facts;
use crate::moment::Moment;
use crate::objects::{Found, Kind};
use crate::paths::Paths;
use crate::pod::{ImageSource, Pod, TokenProjection, Volume};

pub use driver_error::{DriverError, DriverStep};
pub use error::{SetUpError, VolumeError};
pub use figures::{VolumeFigure, VolumeFigures};
pub use persistent::{is_set_up, provisioned};
pub use reconstruct::{FoundVolume, pods_on_disk, remove_pod, tear_down, tear_down_subpaths, unmount};
pub use stats::VolumeStats;

/// The directories above a volume are for the kubelet and the runtime alone.
pub const PARENT_MODE: u32 = 0o750;

/// One type of volume. What most types have in common is the default.
pub trait VolumeType: Sync {
    /// The field of a pod's volume that asks for this type.
    fn field(&self) -> &'static str;

    /// Upstream's name of the directory in which a pod has its volumes of this type, without its domain.
    fn directory(&self) -> &'static str;

    fn is_type_of(&self, volume: &Volume) -> bool;

    /// What has to be found out before the volume can be set up.
    fn needs<'a>(&self, volume: &'a Volume) -> Needs<'a> {
        let _ = volume;
        Needs::default()
    }

    /// Sets the volume up; called again, it brings it up to date.
    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError>;

    /// Unmounts and removes what [`set_up`](VolumeType::set_up) made for a pod that has ended. Data that is not the
    /// pod's own stays.
    fn tear_down(&self, paths: &Paths, found: &FoundVolume) -> Result<(), VolumeError> {
        reconstruct::remove_volume(paths, found)
    }

    /// How much is in the volume, for types that can say so.
    fn stats(&self, volume: &MountedVolume) -> Option<VolumeStats> {
        let _ = volume;
        None
    }
}

/// Every type, sorted by its field.
pub static TYPES: &[&dyn VolumeType] = &[
    &config_map::ConfigMapVolume,
    &csi::CsiVolume,
    &downward_api::DownwardApiVolume,
    &empty_dir::EmptyDirVolume,
    &ephemeral::EphemeralVolume,
    &host_path::HostPathVolume,
    &image::ImageVolume,
    &claim::ClaimVolume,
    &projected::ProjectedVolume,
    &secret::SecretVolume,
];

/// What a volume is made from, beyond its pod.
#[derive(Debug, Default)]
pub struct Needs<'a> {
    pub objects: BTreeSet<(Kind, String)>,
    /// Service account tokens that are issued for it.
    pub tokens: Vec<&'a TokenProjection>,
    /// The image whose files it shows.
    pub image: Option<&'a ImageSource>,
    /// The claim that leads to it.
    pub claim: Option<ClaimReference<'a>>,
}

/// Everything a volume is set up from.
pub struct SetUp<'a> {
    pub paths: &'a Paths,
    pub pod: &'a Pod,
    pub volume: &'a Volume,
    pub found: &'a Found,
    pub facts: &'a Facts,
    /// Service account tokens by the path they are projected to.
    pub tokens: &'a BTreeMap<String, String>,
    /// The image that the volume shows, as the runtime knows it.
    pub image: Option<&'a str>,
    /// What the volume's claim is bound to.
    pub claim: Option<&'a BoundVolume>,
    /// What a CSI driver has mounted for it.
    pub published: Option<&'a MountSource>,
    pub now: Moment,
}

/// A volume that containers can be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    pub source: MountSource,
    /// Containers can only read it, whatever their mounts say.
    pub read_only: bool,
    /// The claim that led to it.
    pub claim: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A file or directory of the host.
    Path(PathBuf),
    /// An image, which the runtime mounts.
    Image(String),
    /// A block device of the host, which containers are given as such.
    Device(PathBuf),
}

impl SetUp<'_> {
    /// Where a volume of this type is set up.
    pub fn path(&self, volume_type: &dyn VolumeType) -> PathBuf {
        let uid = &self.pod.metadata.uid;
        self.paths.volume(uid, volume_type.directory(), &self.volume.name)
    }

    /// The group that owns the pod's volumes.
    pub fn fs_group(&self) -> Option<u32> {
        let group = self.pod.spec.security_context.fs_group?;
        u32::try_from(group).ok()
    }
}

impl MountedVolume {
    pub fn writable(path: PathBuf) -> MountedVolume {
        MountedVolume {
            source: MountSource::Path(path),
            read_only: false,
            claim: None,
        }
    }

    /// What the kubelet writes is not for containers to change.
    pub fn written_by_kubelet(path: PathBuf) -> MountedVolume {
        MountedVolume {
            source: MountSource::Path(path),
            read_only: true,
            claim: None,
        }
    }

    /// Where the volume is on the host.
    pub fn path(&self) -> Option<&PathBuf> {
        match &self.source {
            MountSource::Path(path) => Some(path),
            MountSource::Image(_) | MountSource::Device(_) => None,
        }
    }
}

/// The type of a volume. A volume without a source is an empty directory; a source that no type knows has none.
pub fn type_of(volume: &Volume) -> Option<&'static dyn VolumeType> {
    TYPES.iter().copied().find(|known| known.is_type_of(volume))
}

/// Where an empty directory of a pod is, whether it is set up or not.
pub fn empty_dir_path(paths: &Paths, pod: &Pod, volume: &Volume) -> PathBuf {
    let directory = empty_dir::EmptyDirVolume.directory();
    paths.volume(&pod.metadata.uid, directory, &volume.name)
}

/// What has to be found out before the volume can be set up.
pub fn needs(volume: &Volume) -> Needs<'_> {
    type_of(volume).map_or_else(Needs::default, |known| known.needs(volume))
}

/// Makes a volume be as it should; called again, it brings it up to date. The error is for the user and names the volume.
pub fn set_up(request: &SetUp<'_>) -> Result<MountedVolume, VolumeError> {
    let volume = request.volume;
    let done = match type_of(volume) {
        Some(known) => {
            tracing::trace!(
                pod = request.pod.key(),
                volume = volume.name,
                kind = known.field(),
                "setting up a volume"
            );
            known.set_up(request)
        }
        None => Err(SetUpError::UnsupportedType(
            volume.other.keys().cloned().collect::<Vec<_>>().join(", "),
        )),
    };
    done.map_err(|source| {
        // A PersistentVolume goes by its own name.
        let name = request.claim.map_or(&volume.name, |bound| &bound.volume.metadata.name);
        let (volume, source) = (name.clone(), Box::new(source));
        match *source {
            SetUpError::NoMountOptions => VolumeError::MountOptionSupport { volume, source },
            _ => VolumeError::SetUp { volume, source },
        }
    })
}
