//! Why a task failed. Users read some of these in events, administrators all of them in logs.

use std::io;
use std::path::{Path, PathBuf};

use crate::container::sandbox::SandboxError;
use crate::user_namespaces::UserNamespaceError;
use crate::volumes::VolumeError;

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("{0}")]
    Runtime(#[from] cri::Error),
    #[error("failed to stop sandbox {id}: {source}")]
    StopSandbox { id: String, source: cri::Error },
    #[error("failed to remove sandbox {id}: {source}")]
    RemoveSandbox { id: String, source: cri::Error },
    #[error("sandbox {0} vanished after it was created")]
    SandboxVanished(String),
    /// The pod asks for a sandbox that this node cannot make.
    #[error(transparent)]
    SandboxConfig(#[from] SandboxError),
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    #[error("failed to get RuntimeClass {name:?} of the pod: {source}")]
    RuntimeClass { name: String, source: client::Error },
    #[error("failed to stop container {id}: {source}")]
    StopContainer { id: String, source: cri::Error },
    #[error("failed to remove container {id}: {source}")]
    RemoveContainer { id: String, source: cri::Error },
    #[error("failed to update the resources of container {container:?}: {source}")]
    ChangeContainer { container: String, source: cri::Error },
    /// In upstream's words: clients look for them in the pod's condition.
    #[error("cannot decrease memory limits: {0}")]
    MemoryInUse(String),
    #[error("failed to read the memory usage of the pod: {0}")]
    MemoryUsage(#[source] cri::Error),
    #[error("failed to create the pod's cgroup: {0}")]
    MakeCgroup(#[source] io::Error),
    #[error("failed to update the pod's cgroup: {0}")]
    ChangeCgroup(#[source] io::Error),
    #[error("failed to remove the pod's cgroup: {0}")]
    RemoveCgroup(#[source] io::Error),
    #[error("failed to create {path}: {source}")]
    Make { path: PathBuf, source: io::Error },
    #[error("failed to remove {path}: {source}")]
    Remove { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Volumes(#[from] VolumeError),
    #[error("failed to delete the pod from the API server: {0}")]
    DeletePod(#[source] client::Error),
    #[error("the pod's task panicked: {0}")]
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
