//! Why a volume could not be set up or torn down. The texts are what users read in events.

use std::io;
use std::path::PathBuf;

use crate::objects::MissingObject;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    SetUp { volume: String, source: Box<SetUpError> },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {reason}: {message}")]
    Image {
        volume: String,
        reason: String,
        message: String,
    },
    #[error("MountVolume.SetUp failed for volume {volume:?} : failed to fetch token: {source}")]
    Token { volume: String, source: client::Error },
    #[error(transparent)]
    Objects(#[from] crate::objects::follow::NotSynced),
    #[error("cannot unmount what is below {path}: {source}")]
    Unmount { path: PathBuf, source: io::Error },
    #[error("cannot remove {path}: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("cannot read the volumes in {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the task that sets up volumes failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Why one volume could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    #[error("cannot make {path}: {source}")]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot mount a tmpfs at {path}: {source}")]
    MountMemory { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
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
    #[error("{0}")]
    Field(String),
    #[error("downward API item {0:?} has no source")]
    NoFieldSource(String),
    #[error("the service account token has not been issued")]
    NoToken,
    #[error("the image has not been pulled")]
    NoImage,
    #[error("projected sources {0:?} are not supported by this node")]
    UnsupportedProjection(Vec<String>),
    #[error("volumes of type {0} are not supported by this node")]
    UnsupportedType(String),
}
