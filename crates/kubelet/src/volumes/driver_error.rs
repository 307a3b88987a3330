//! Why a volume that a CSI driver mounts could not be mounted or unmounted, in upstream's words where it has them.

use std::io;
use std::path::PathBuf;

use super::VolumeError;

/// What was being done for a volume, as upstream's events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverStep {
    WaitForAttach,
    MountDevice,
    SetUp,
    SetUpDevice,
    MapPodDevice,
    TearDown,
    UnmapPodDevice,
    Expand,
}

impl DriverStep {
    pub fn stage(is_block: bool) -> DriverStep {
        match is_block {
            true => DriverStep::SetUpDevice,
            false => DriverStep::MountDevice,
        }
    }

    pub fn publish(is_block: bool) -> DriverStep {
        match is_block {
            true => DriverStep::MapPodDevice,
            false => DriverStep::SetUp,
        }
    }

    pub fn unpublish(is_block: bool) -> DriverStep {
        match is_block {
            true => DriverStep::UnmapPodDevice,
            false => DriverStep::TearDown,
        }
    }

    /// The reason of the event that says that it failed.
    pub fn reason(self) -> &'static str {
        match self {
            DriverStep::SetUpDevice | DriverStep::MapPodDevice => "FailedMapVolume",
            DriverStep::UnmapPodDevice => "FailedUnmapDevice",
            DriverStep::Expand => "VolumeResizeFailed",
            _ => "FailedMount",
        }
    }
}

impl std::fmt::Display for DriverStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DriverStep::WaitForAttach => "MountVolume.WaitForAttach",
            DriverStep::MountDevice => "MountVolume.MountDevice",
            DriverStep::SetUp => "MountVolume.SetUp",
            DriverStep::SetUpDevice => "MapVolume.SetUpDevice",
            DriverStep::MapPodDevice => "MapVolume.MapPodDevice",
            DriverStep::TearDown => "UnmountVolume.TearDown",
            DriverStep::UnmapPodDevice => "UnmapVolume.UnmapPodDevice",
            DriverStep::Expand => "NodeExpandVolume.NodeExpandVolume",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The driver itself refused, or could not be reached.
    #[error(transparent)]
    Call(#[from] csi::Error),
    #[error("kubernetes.io/csi: failed to get CSI client: {0}")]
    Endpoint(String),
    #[error("kubernetes.io/csi: failed to get CSIDriver: {0}")]
    Object(#[source] client::Error),
    #[error(
        "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode {mode:?} not supported by \
         driver {driver} ({reason})"
    )]
    Mode {
        mode: &'static str,
        driver: String,
        reason: String,
    },
    #[error("fetching {field} {namespace}/{name} failed: {why}")]
    Secret {
        field: &'static str,
        namespace: String,
        name: String,
        why: String,
    },
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: {0}")]
    Token(#[source] client::Error),
    #[error("failed to report the volumes in use in the node's status: {0}")]
    InUse(#[source] client::Error),
    #[error("failed to get the volume's VolumeAttachment: {0}")]
    Attachment(#[source] client::Error),
    #[error("volume {handle} is not attached for volume attachment {attachment}")]
    NotAttached { handle: String, attachment: String },
    /// What the driver's attacher said.
    #[error("{0}")]
    Attach(String),
    #[error("failed to read or update the PersistentVolumeClaim or its PersistentVolume: {0}")]
    Claim(#[source] client::Error),
    #[error("the volume's capacity {0:?} is not a quantity")]
    Size(String),
    #[error("NodeExpand is not supported by the CSI driver {0}")]
    NoExpansion(String),
    #[error("the pod is terminating")]
    PodEnds,
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    ReadWriteOncePod,
    #[error("cannot tell which pods use the volume: {0}")]
    Users(#[source] Box<VolumeError>),
    #[error("failed to prepare {path}: {source}")]
    Prepare { path: PathBuf, source: io::Error },
    #[error("the CSI driver published no usable volume at {path}: {source}")]
    NotPublished { path: PathBuf, source: io::Error },
    #[error("the CSI driver published no block device at {0}")]
    NotADevice(PathBuf),
    #[error("applyFSGroup failed for vol {handle}: {source}")]
    Own { handle: String, source: io::Error },
    #[error("{0}")]
    Unmount(#[source] Box<VolumeError>),
    #[error("cannot remove {path}: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("path {0} is not UTF-8, which CSI drivers require")]
    Path(PathBuf),
    #[error("the work on a volume panicked: {0}")]
    Task(#[from] tokio::task::JoinError),
}
