//! What this kubelet has learned and is doing about a pod, beyond what the runtime reports.

use std::collections::BTreeMap;
use std::time::Duration;

use super::restart::Reset;
use crate::limits;
use crate::moment::Moment;
use crate::pod::resources::Compute;
use crate::resize::Pending;

/// The waiting reason of a container that lacks something it is made from.
pub const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// Lost when the kubelet restarts; everything in it is found out again.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Set once, when the pod has to end although the API still wants it, or no longer knows it.
    pub stop: Option<Stop>,
    /// When its end began; the grace period counts from here.
    pub ending_since: Option<Moment>,
    pub volumes: Volumes,
    /// All containers are started again.
    pub reset: Option<Reset>,
    /// Why the pod does not get the resources it asks for now.
    pub resize_pending: Option<Pending>,
    /// What the pod's cgroup was limited to, if this kubelet did so.
    pub pod_applied: Option<Compute>,
    pub sandbox: Option<Failure>,
    pub containers: BTreeMap<String, ContainerProgress>,
    /// What is being done right now.
    pub busy: BTreeMap<Task, Busy>,
    /// What failed and is not tried again before its time.
    pub failed: BTreeMap<Task, Failure>,
}

/// Why a pod has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is no longer in the API, so its containers are killed and everything of it is removed.
    Gone,
    /// `activeDeadlineSeconds` have passed.
    Deadline,
    /// The node has run out of something; what, stands in the message.
    Evicted { message: String },
    /// It cannot run here, or no longer: `reason` and `message` of its status.
    Rejected { reason: String, message: String },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Volumes {
    /// A kubelet that was here before may have mounted them.
    #[default]
    Unknown,
    Unmounted,
    Mounted,
    Failed(Failure),
}

#[derive(Clone, Debug, Default)]
pub struct ContainerProgress {
    pub image: Image,
    /// Why the last attempt to create or start it failed.
    pub failure: Option<Failure>,
    pub backoff: Option<Backoff>,
    pub verdicts: Verdicts,
    /// The instance that was ended for another one with other resources to take its place.
    pub replaced: Option<String>,
    /// What the next instance is started with.
    pub starting_with: Option<Compute>,
    /// What an instance was given last.
    pub applied: Option<Applied>,
}

/// The resources that an instance runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub container: String,
    pub id: String,
    pub compute: Compute,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Image {
    /// To be looked for, and pulled if need be, before the next start.
    #[default]
    Unknown,
    /// The runtime has it, under this reference.
    Ready(String),
    Failed(Failure),
}

/// Something failed and will be tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// As a container's waiting reason shows it.
    pub reason: String,
    pub message: String,
    pub failed_at: Moment,
    pub delay: Duration,
}

impl Failure {
    /// A failure whose wait follows that of the one before.
    pub fn after(before: Option<&Failure>, first: Duration, max: Duration, now: Moment) -> Failure {
        Failure {
            failed_at: now,
            delay: before.map_or(first, |before| (before.delay * 2).clamp(first, max)),
            ..Failure::default()
        }
    }

    pub fn because(mut self, reason: &str, message: impl Into<String>) -> Failure {
        self.reason = reason.to_owned();
        self.message = message.into();
        self
    }

    pub fn retry_at(&self) -> Moment {
        self.failed_at.plus(self.delay)
    }
}

/// How long a container that ends again and again waits for its next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub delay: Duration,
    pub updated_at: Moment,
}

impl Backoff {
    /// The wait after an end at `finished_at`, if there is one: the first restart after a quiet time is immediate.
    pub fn wait_until(backoff: Option<Backoff>, finished_at: Moment, now: Moment) -> Option<Moment> {
        let backoff = backoff.filter(|backoff| !backoff.is_forgotten(finished_at))?;
        let until = finished_at.plus(backoff.delay);
        (now < until).then_some(until)
    }

    /// The backoff once a container that ended at `finished_at` has been started again.
    pub fn next(backoff: Option<Backoff>, finished_at: Moment, now: Moment) -> Backoff {
        let known = backoff.filter(|backoff| !backoff.is_forgotten(finished_at));
        let delay = known.map_or(limits::CRASH_BACKOFF, |known| {
            (known.delay * 2).min(limits::CRASH_BACKOFF_MAX)
        });
        Backoff { delay, updated_at: now }
    }

    /// A container that ran for twice the longest wait starts afresh.
    fn is_forgotten(&self, finished_at: Moment) -> bool {
        finished_at.since(self.updated_at) > limits::CRASH_BACKOFF_MAX * 2
    }
}

/// What the probes of one instance have found so far. Nothing found means: not started, not ready, not unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub container_id: String,
    pub started: bool,
    pub ready: bool,
    pub unhealthy: Option<Unhealthy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unhealthy {
    Liveness,
    Startup,
}

/// What is done about one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    Volumes,
    Sandbox,
    /// Changing what the pod and its containers may use.
    Resize,
    Image(String),
    /// Creating and starting a container, with its postStart hook.
    Start(String),
    Kill(String),
    Remove(String),
    Delete,
    Cleanup,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// How long a task may still go on; only killing has an end known beforehand.
    pub until: Option<Moment>,
    /// A ConfigMap or Secret has changed since the task began, which may have read the old one.
    pub overtaken: bool,
}

impl Progress {
    pub fn is_busy(&self, task: &Task) -> bool {
        self.busy.contains_key(task)
    }

    /// A container is being created or started, or its postStart hook runs.
    pub fn is_starting(&self, container: &str) -> bool {
        self.is_busy(&Task::Start(container.to_owned()))
    }

    /// Containers are being started, or ended for others to take their place.
    pub fn changes_containers(&self) -> bool {
        let change = |task: &Task| matches!(task, Task::Image(_) | Task::Start(_) | Task::Kill(_));
        self.busy.keys().any(change)
    }

    /// A ConfigMap or Secret of the pod changed. What failed, perhaps for want of it, is tried again at once; what is
    /// being made from it counts as overtaken.
    pub fn objects_changed(&mut self) {
        if let Volumes::Failed(failure) = &mut self.volumes {
            failure.delay = Duration::ZERO;
        }
        let failures = self.containers.values_mut().filter_map(|it| it.failure.as_mut());
        for failure in failures.filter(|failure| failure.reason == CONFIG_ERROR) {
            failure.delay = Duration::ZERO;
        }
        for (task, busy) in &mut self.busy {
            busy.overtaken |= matches!(task, Task::Volumes | Task::Start(_));
        }
    }

    pub fn container(&self, name: &str) -> Option<&ContainerProgress> {
        self.containers.get(name)
    }

    pub fn container_mut(&mut self, name: &str) -> &mut ContainerProgress {
        self.containers.entry(name.to_owned()).or_default()
    }

    /// What an instance runs with, if this kubelet knows.
    pub fn applied(&self, name: &str, container_id: &str) -> Option<Compute> {
        let applied = self.containers.get(name)?.applied.as_ref()?;
        (applied.id == container_id).then_some(applied.compute)
    }

    /// What the probes say about an instance; findings about an earlier one do not count.
    pub fn verdicts(&self, name: &str, container_id: &str) -> Option<&Verdicts> {
        let verdicts = &self.containers.get(name)?.verdicts;
        (verdicts.container_id == container_id).then_some(verdicts)
    }
}
