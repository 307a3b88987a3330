//! The planner: from what a pod should be and what is known of it to what is to be done next.
//!
//! [`plan`] is pure. The pod's worker calls it after every change, does what it says and tells [`Progress`] what is
//! under way; whatever is under way is not planned again.

mod ending;
mod progress;
mod restart;
#[cfg(test)]
mod restart_tests;
mod running;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use crate::moment::Moment;
use crate::observed::{Instance, Observed, State};
use crate::pod::resources::{Compute, container_compute, pod_compute};
use crate::pod::{Container, ContainerKind, Pod};
use crate::resize;
pub use progress::*;

/// Everything a decision about one pod may depend on.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    pub progress: &'a Progress,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// When to plan again even if nothing happens.
    pub wake_at: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// From now on the pod is ending.
    Stop(Stop),
    MountVolumes,
    UnmountVolumes,
    CreateSandbox {
        attempt: u32,
    },
    StopSandbox {
        id: String,
    },
    RemoveSandbox {
        id: String,
    },
    /// Makes sure that the container's image is there, by its pull policy.
    EnsureImage {
        container: String,
    },
    /// Gives up pulling for a pod that is ending.
    CancelPull {
        container: String,
    },
    StartContainer {
        container: String,
        attempt: u32,
    },
    KillContainer {
        id: String,
        container: String,
        grace: Duration,
        reason: KillReason,
    },
    RemoveContainer {
        id: String,
    },
    /// Brings the limits of the pod and its running containers to what the pod was granted.
    Resize,
    /// Deletes the object in the API: nothing of the pod runs any more.
    DeletePod,
    /// Removes the pod's directories and cgroup and ends the worker.
    Cleanup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// The pod is ending.
    Ending,
    Liveness,
    Startup,
    DefinitionChanged,
    /// It gets other resources, which take a restart.
    Resize,
    /// The runtime does not know what state it is in.
    UnknownState,
    /// Its sandbox is gone.
    SandboxLost,
    /// Another container ended in a way that has all of them started again.
    RestartAll,
}

/// How a pod has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

pub fn plan(view: PodView<'_>, now: Moment) -> Plan {
    let mut plan = Plan::default();
    if let Some(stop) = due_stop(view, now, &mut plan) {
        plan.actions.push(Action::Stop(stop));
        return plan;
    }
    if view.is_ending() {
        ending::plan(view, now, &mut plan);
    } else {
        running::plan(view, now, &mut plan);
    }
    plan.actions.retain(|action| !view.progress.covers(action, now));
    hold_back(view, now, &mut plan);
    plan
}

/// Leaves out what has just failed.
fn hold_back(view: PodView<'_>, now: Moment, plan: &mut Plan) {
    for action in std::mem::take(&mut plan.actions) {
        let failure = action.task().and_then(|task| view.progress.failed.get(&task));
        match failure.map(Failure::retry_at).filter(|at| now < *at) {
            Some(at) => plan.wake(at),
            None => plan.push(action),
        }
    }
}

/// Why the pod must not run, or no longer. The deadline counts from the moment the kubelet first knew the pod.
fn due_stop(view: PodView<'_>, now: Moment, plan: &mut Plan) -> Option<Stop> {
    if view.is_ending() {
        return None;
    }
    let seconds = view.pod.spec.active_deadline_seconds?;
    let due = view
        .pod
        .status
        .start_time?
        .plus(Duration::from_secs(seconds.max(0) as u64));
    if now >= due {
        return Some(Stop::Deadline);
    }
    plan.wake(due);
    None
}

impl<'a> PodView<'a> {
    /// Nothing of the pod is started any more.
    pub fn is_ending(self) -> bool {
        self.progress.stop.is_some() || self.pod.is_deleting() || self.pod.is_terminal() || self.outcome().is_some()
    }

    /// How the pod has ended by itself: all its containers have, and none of them is to be started again.
    pub fn outcome(self) -> Option<Outcome> {
        if self.has_failed_init() {
            return Some(Outcome::Failed);
        }
        let mut outcome = Outcome::Succeeded;
        for container in &self.pod.spec.containers {
            let exit = self.latest(&container.name)?.exit()?;
            if self.restarts(ContainerKind::App, container, exit.code) {
                return None;
            }
            if exit.code != 0 {
                outcome = Outcome::Failed;
            }
        }
        (!self.pod.spec.containers.is_empty()).then_some(outcome)
    }

    fn has_failed_init(self) -> bool {
        self.pod.spec.init_containers.iter().any(|container| {
            let kind = container.init_kind();
            let exit = self.latest(&container.name).and_then(Instance::exit);
            kind == ContainerKind::Init
                && exit.is_some_and(|exit| exit.code != 0 && !self.restarts(kind, container, exit.code))
        })
    }

    /// Running instances whose resources differ from what their containers were granted, and what they have.
    fn outdated(self) -> impl Iterator<Item = (&'a Instance, &'a Container, Compute)> {
        let (pod, observed, progress) = (self.pod, self.observed, self.progress);
        pod.all_containers().filter_map(move |(kind, container)| {
            let instance = observed
                .current(&container.name)
                .filter(|instance| instance.is_running())?;
            let applied = progress.applied(&container.name, &instance.id)?;
            let fixed = kind == ContainerKind::Ephemeral;
            (!fixed && applied != container_compute(pod, container)).then_some((instance, container, applied))
        })
    }

    /// Those that need no restart for it.
    pub fn resizable(self) -> impl Iterator<Item = (&'a Instance, &'a Container, Compute)> {
        let pod = self.pod;
        let stays = move |(_, container, applied): &(&Instance, &Container, Compute)| {
            !resize::needs_restart(container, *applied, container_compute(pod, container))
        };
        self.outdated().filter(stays)
    }

    /// What the pod's cgroup is to be limited to now. While containers wait to be ended for others with other resources,
    /// that is enough for both: the kernel gives no cgroup less than what is inside.
    pub fn pod_target(self) -> Compute {
        let wanted = pod_compute(self.pod);
        let pod = self.pod;
        let waits = |(_, container, applied): (&Instance, &Container, Compute)| {
            resize::needs_restart(container, applied, container_compute(pod, container))
        };
        match self.progress.pod_applied {
            Some(applied) if self.outdated().any(waits) => applied.max(wanted),
            _ => wanted,
        }
    }

    /// What the pod was granted is not what it has yet.
    pub fn is_resizing(self) -> bool {
        let pod = self.progress.pod_applied;
        self.outdated().next().is_some() || pod.is_some_and(|applied| applied != pod_compute(self.pod))
    }

    /// Initialisation is over once any of the app containers was made in the current sandbox.
    pub fn is_initialized(self) -> bool {
        let mut containers = self.pod.spec.containers.iter();
        containers.any(|container| self.current(&container.name).is_some())
    }

    /// Whether a running instance counts as started: its hook has returned and its startup probe has succeeded.
    pub fn is_started(self, container: &Container, instance: &Instance) -> bool {
        let verdicts = self.progress.verdicts(&container.name, &instance.id);
        let probed = container.startup_probe.is_none() || verdicts.is_some_and(|verdicts| verdicts.started);
        instance.is_running() && probed && !self.progress.is_starting(&container.name)
    }

    pub fn is_ready(self, container: &Container, instance: &Instance) -> bool {
        let verdicts = self.progress.verdicts(&container.name, &instance.id);
        let probed = container.readiness_probe.is_none() || verdicts.is_some_and(|verdicts| verdicts.ready);
        self.is_started(container, instance) && probed
    }

    /// A sandbox or a container is on its way, which must be known before it can be ended.
    pub fn is_creating(self) -> bool {
        self.progress.busy.keys().any(|task| match task {
            Task::Sandbox => true,
            Task::Start(container) => self.observed.latest(container).is_none_or(is_unstarted),
            _ => false,
        })
    }

    /// Until when a container that has ended must wait for its next start, unless that is under way.
    pub fn crash_wait(self, instance: &Instance, now: Moment) -> Option<Moment> {
        if self.progress.is_starting(&instance.name) || self.is_replaced(&instance.name) {
            return None;
        }
        let finished_at = instance.exit()?.finished_at.unwrap_or(instance.created_at);
        let backoff = self
            .progress
            .container(&instance.name)
            .and_then(|container| container.backoff);
        Backoff::wait_until(backoff, finished_at, now)
    }

    /// The restart count of the next instance. The API remembers it when the runtime has forgotten.
    pub fn next_attempt(self, container: &str) -> u32 {
        let known = self.pod.known_container(container);
        let known = known
            .filter(|known| known.has_run())
            .map(|known| known.restart_count + 1);
        let latest = self.observed.latest(container).map(|instance| instance.attempt + 1);
        latest.max(known).unwrap_or(0)
    }
}

impl Plan {
    fn wake(&mut self, at: Moment) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn kill(&mut self, instance: &Instance, grace: Duration, reason: KillReason) {
        self.push(Action::KillContainer {
            id: instance.id.clone(),
            container: instance.name.clone(),
            grace,
            reason,
        });
    }
}

impl Progress {
    /// Whether an action is under way already. A kill is repeated when its grace period has become shorter.
    fn covers(&self, action: &Action, now: Moment) -> bool {
        let Some(busy) = action.task().and_then(|task| self.busy.get(&task)) else {
            return false;
        };
        match action {
            Action::KillContainer { grace, .. } => {
                let sooner = now.plus(*grace).plus(Duration::from_secs(1));
                busy.until.is_none_or(|until| until <= sooner)
            }
            _ => true,
        }
    }
}

impl Action {
    /// What the action occupies while it goes on.
    pub fn task(&self) -> Option<Task> {
        Some(match self {
            Action::Stop(_) | Action::CancelPull { .. } => return None,
            Action::MountVolumes | Action::UnmountVolumes => Task::Volumes,
            Action::CreateSandbox { .. } => Task::Sandbox,
            Action::Resize => Task::Resize,
            Action::StopSandbox { id } => Task::Kill(id.clone()),
            Action::EnsureImage { container } => Task::Image(container.clone()),
            Action::StartContainer { container, .. } => Task::Start(container.clone()),
            Action::KillContainer { id, .. } => Task::Kill(id.clone()),
            Action::RemoveContainer { id } | Action::RemoveSandbox { id } => Task::Remove(id.clone()),
            Action::DeletePod => Task::Delete,
            Action::Cleanup => Task::Cleanup,
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Stop(stop) => write!(f, "stop the pod: {stop:?}"),
            Action::MountVolumes => write!(f, "mount volumes"),
            Action::UnmountVolumes => write!(f, "unmount volumes"),
            Action::CreateSandbox { attempt } => write!(f, "create sandbox, attempt {attempt}"),
            Action::StopSandbox { id } => write!(f, "stop sandbox {id}"),
            Action::RemoveSandbox { id } => write!(f, "remove sandbox {id}"),
            Action::EnsureImage { container } => write!(f, "ensure image of {container}"),
            Action::CancelPull { container } => write!(f, "cancel pull for {container}"),
            Action::StartContainer { container, attempt } => write!(f, "start {container}, attempt {attempt}"),
            Action::KillContainer {
                id,
                container,
                grace,
                reason,
            } => write!(f, "kill {container} ({id}) in {}s: {reason:?}", grace.as_secs()),
            Action::Resize => write!(f, "resize"),
            Action::RemoveContainer { id } => write!(f, "remove container {id}"),
            Action::DeletePod => write!(f, "delete the pod in the API"),
            Action::Cleanup => write!(f, "clean up"),
        }
    }
}

/// A container that was made but never ran has nothing to lose.
fn is_unstarted(instance: &Instance) -> bool {
    instance.state == State::Created
}
