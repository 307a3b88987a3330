//! What a worker is told: what its pod should be, and what happened.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::error::TaskError;
use super::image::{NoImage, ReadyImage};
use super::start::StartError;
use super::tasks::TaskId;
use super::volumes::Mounted;
use crate::observed::{Instance, Sandbox};
use crate::owners::RuntimeObject;
use crate::plan::{Applied, Task};
use crate::pod::Pod;
use crate::pod::resources::Compute;
use crate::probe::{ProbeKind, Report};
use crate::volumes::VolumeError;

/// A pod as the API has it, decoded and as bytes.
#[derive(Debug)]
pub struct PodObject {
    pub pod: Arc<Pod>,
    pub raw: Bytes,
}

/// What a worker is to work towards. Only the newest counts.
#[derive(Clone)]
pub struct Input {
    pub object: Arc<PodObject>,
    /// The API no longer has the pod.
    pub gone: bool,
}

/// What happened.
pub enum Message {
    Container(Instance),
    Sandbox(Sandbox),
    /// This sandbox has ended, whoever ended it.
    SandboxEnded(String),
    /// Something happened to this container or sandbox: ask the runtime.
    Inspect {
        id: String,
        object: RuntimeObject,
    },
    /// The runtime no longer knows this container or sandbox.
    Vanished(String),
    Probe {
        container: String,
        container_id: String,
        kind: ProbeKind,
        report: Report,
    },
    /// The pod has to go, for what the message says.
    Evict(String),
    /// A ConfigMap or Secret of the pod changed.
    ObjectsChanged,
    /// A task ended.
    Done(Task, TaskId, Done),
    StatusWritten(Result<Bytes, client::Error>),
}

/// How a task ended.
pub enum Done {
    Mounted(Result<Mounted, VolumeError>),
    Unmounted(Result<(), TaskError>),
    SandboxCreated(Result<Sandbox, TaskError>),
    Image(String, Result<ReadyImage, NoImage>),
    Started(String, Result<(), StartError>),
    /// Anything whose effect is seen in the runtime or the API.
    Plain(Result<(), TaskError>),
    Cleaned(Result<(), TaskError>),
    /// What the pod as a whole and its containers have now.
    Resized(Result<(Compute, Vec<Applied>), TaskError>),
}

/// How others reach a worker.
pub struct Handle {
    pub input: watch::Sender<Input>,
    pub mailbox: mpsc::Sender<Message>,
}
