//! Why a task failed. Users read some of these in events, administrators all of them in logs.

use std::io;
use std::path::{Path, PathBuf};

use crate::volumes::VolumeError;

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("{0}")]
    Runtime(#[from] cri::Error),
    #[error("cannot stop sandbox {id}: {source}")]
    StopSandbox { id: String, source: cri::Error },
    #[error("cannot remove sandbox {id}: {source}")]
    RemoveSandbox { id: String, source: cri::Error },
    #[error("sandbox {0} vanished after it was created")]
    SandboxVanished(String),
    /// The pod asks for a sandbox that this node cannot make.
    #[error("{0}")]
    SandboxConfig(String),
    #[error("runtimeClassName {0:?} is not supported by this node")]
    RuntimeClass(String),
    #[error("cannot stop container {id}: {source}")]
    StopContainer { id: String, source: cri::Error },
    #[error("cannot remove container {id}: {source}")]
    RemoveContainer { id: String, source: cri::Error },
    #[error("cannot change container {container:?}: {source}")]
    ChangeContainer { container: String, source: cri::Error },
    #[error("cannot make the pod's cgroup: {0}")]
    MakeCgroup(#[source] io::Error),
    #[error("cannot change the pod's cgroup: {0}")]
    ChangeCgroup(#[source] io::Error),
    #[error("cannot remove the pod's cgroup: {0}")]
    RemoveCgroup(#[source] io::Error),
    #[error("cannot make {path}: {source}")]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot remove {path}: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Volumes(#[from] VolumeError),
    #[error("cannot delete the pod: {0}")]
    DeletePod(#[source] client::Error),
    #[error("the task failed: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl TaskError {
    pub fn make(path: &Path) -> impl FnOnce(io::Error) -> TaskError {
        let path = path.to_owned();
        move |source| TaskError::Make { path, source }
    }

    pub fn remove(path: &Path) -> impl FnOnce(io::Error) -> TaskError {
        let path = path.to_owned();
        move |source| TaskError::Remove { path, source }
    }
}
