//! Why a volume could not be set up or torn down. The texts are what users read in events.

use std::io;
use std::path::PathBuf;

use super::driver_error::{DriverError, DriverStep};
use super::format::FormatError;
use crate::container::fields::FieldError;
use crate::objects::MissingObject;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    SetUp { volume: String, source: Box<SetUpError> },
    #[error("MountVolume.MountOptionSupport check failed for volume {volume:?} : {source}")]
    MountOptionSupport { volume: String, source: Box<SetUpError> },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {reason}: {message}")]
    Image {
        volume: String,
        reason: String,
        message: String,
    },
    #[error("MountVolume.SetUp failed for volume {volume:?} : failed to fetch token: {source}")]
    Token { volume: String, source: client::Error },
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process \
         volumes=[{volume}]: {source}"
    )]
    Claim {
        volume: String,
        source: Box<crate::claims::ClaimError>,
    },
    #[error("MountVolume.NodeAffinity check failed for volume {volume:?} : no matching NodeSelectorTerms")]
    NodeAffinity { volume: String },
    #[error("{step} failed for volume {volume:?} : {source}")]
    Driver {
        step: DriverStep,
        volume: String,
        source: Box<DriverError>,
    },
    #[error("volume {0:?} is still published by its CSI driver")]
    StillPublished(String),
    #[error(transparent)]
    Objects(#[from] crate::objects::follow::NotSynced),
    #[error("failed to unmount the mounts below {path}: {source}")]
    Unmount { path: PathBuf, source: io::Error },
    #[error("failed to remove {path}: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("failed to list the volumes in {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the set-up of volumes panicked: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl VolumeError {
    /// The reason of the event that tells the pod's owner.
    pub fn reason(&self) -> &'static str {
        match self {
            VolumeError::Driver { step, .. } => step.reason(),
            _ => "FailedMount",
        }
    }
}

/// Why one volume could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    #[error("failed to create {path}: {source}")]
    Make { path: PathBuf, source: io::Error },
    #[error("failed to mount a tmpfs at {path}: {source}")]
    MountMemory { path: PathBuf, source: io::Error },
    #[error("failed to write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("emptyDir medium {0:?} is not supported by this node")]
    UnsupportedMedium(String),
    #[error("{0} is an invalid volume type")]
    InvalidHostPathType(String),
    #[error("hostPath type check failed: {path} is not {expected}")]
    HostPathType { path: String, expected: &'static str },
    #[error(transparent)]
    MissingObject(#[from] MissingObject),
    #[error("{kind} references non-existent {kind} key: {key}")]
    MissingKey { kind: String, key: String },
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("downward API item {0:?} has no source")]
    NoFieldSource(String),
    #[error("the service account token has not been issued")]
    NoToken,
    #[error("the image has not been pulled")]
    NoImage,
    #[error("the volume's PersistentVolumeClaim has not been resolved")]
    NoClaim,
    #[error("the volume's CSI driver has not mounted it")]
    NotPublished,
    #[error("invalid path: {0} must be absolute and must not contain '..'")]
    InvalidPath(String),
    #[error("path {0:?} does not exist")]
    NoPath(PathBuf),
    #[error("failed to open {path}: {source}")]
    Open { path: PathBuf, source: io::Error },
    #[error("path {0:?} is neither a directory nor a block device")]
    NotADirectory(PathBuf),
    #[error("path {0:?} is not a block device")]
    NotABlockDevice(PathBuf),
    #[error("volumes of type {0} cannot have volumeMode Block")]
    NoBlockVolumes(&'static str),
    #[error("Mount options are not supported for this volume type")]
    NoMountOptions,
    #[error("mount option {0:?} is not supported for a local volume that is a directory")]
    UnsupportedMountOption(String),
    #[error("failed to mount at {path}: {source}")]
    Mount { path: PathBuf, source: io::Error },
    #[error("failed to mount the device {path} as {kind}: {source}")]
    MountDevice {
        path: PathBuf,
        kind: String,
        source: io::Error,
    },
    #[error("failed to mount the device {path}: {source}")]
    Format { path: PathBuf, source: FormatError },
    #[error("applyFSGroup failed for vol {path}: {source}")]
    Own { path: PathBuf, source: io::Error },
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    ReadWriteOncePod,
    #[error("failed to find out which pods use the volume: {0}")]
    Users(Box<VolumeError>),
    #[error("projected sources {0:?} are not supported by this node")]
    UnsupportedProjection(Vec<String>),
    #[error("volumes of type {0} are not supported by this node")]
    UnsupportedType(String),
}
