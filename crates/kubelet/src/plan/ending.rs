//! Planning for a pod that is ending: containers first, sandboxes last, and then whatever is left of it.

use std::time::Duration;

use super::{Action, KillReason, Plan, PodView, Stop, Task, Volumes};
use crate::limits;
use crate::moment::Moment;
use crate::observed::Instance;
use crate::pod::ContainerKind;

pub(super) fn plan(view: PodView<'_>, now: Moment, plan: &mut Plan) {
    cancel_pulls(view, plan);
    let mounting = view.progress.is_busy(&Task::Volumes);
    if kill_containers(view, now, plan) || mounting || view.is_creating() {
        return;
    }
    let ready = view.observed.sandboxes.iter().filter(|sandbox| sandbox.ready);
    let before = plan.actions.len();
    for sandbox in ready {
        plan.push(Action::StopSandbox { id: sandbox.id.clone() });
    }
    if plan.actions.len() > before {
        return;
    }
    if view.progress.volumes != Volumes::Unmounted {
        plan.push(Action::UnmountVolumes);
        return;
    }
    match view.progress.stop {
        Some(Stop::Gone) => remove_all(view, plan),
        _ if view.pod.is_deleting() => plan.push(Action::DeletePod),
        // A pod that has ended keeps its containers, so that their logs can be read until it is deleted.
        _ => {}
    }
}

fn cancel_pulls(view: PodView<'_>, plan: &mut Plan) {
    for task in view.progress.busy.keys() {
        if let Task::Image(container) = task {
            plan.push(Action::CancelPull {
                container: container.clone(),
            });
        }
    }
}

/// Kills what is alive: sidecars last, in the reverse of the order they were started in. True if anything is.
fn kill_containers(view: PodView<'_>, now: Moment, plan: &mut Plan) -> bool {
    let alive: Vec<&Instance> = view
        .observed
        .containers
        .iter()
        .filter(|instance| instance.is_alive())
        .collect();
    let sidecar = |instance: &Instance| {
        let place = view
            .pod
            .spec
            .init_containers
            .iter()
            .position(|container| container.name == instance.name);
        place.filter(|place| view.pod.spec.init_containers[*place].init_kind() == ContainerKind::Sidecar)
    };
    let grace = remaining_grace(view, now);
    let mut others = alive.iter().filter(|instance| sidecar(instance).is_none()).peekable();
    if others.peek().is_some() {
        others.for_each(|instance| plan.kill(instance, grace, KillReason::Ending));
    } else if let Some(last) = alive.iter().max_by_key(|instance| sidecar(instance)) {
        plan.kill(last, grace, KillReason::Ending);
    }
    !alive.is_empty()
}

/// What is left of the grace period since the pod began to end.
fn remaining_grace(view: PodView<'_>, now: Moment) -> Duration {
    let used = view
        .progress
        .ending_since
        .map_or(Duration::ZERO, |since| now.since(since));
    if let Some(Stop::Evicted { .. }) = view.progress.stop {
        return limits::EVICTION_GRACE.min(view.pod.grace());
    }
    let grace = view.pod.grace();
    // A request to kill at once is honoured; a grace period that others have used up is not taken for one.
    match grace {
        Duration::ZERO => Duration::ZERO,
        grace => grace.saturating_sub(used).max(limits::MINIMUM_GRACE.min(grace)),
    }
}

fn remove_all(view: PodView<'_>, plan: &mut Plan) {
    if view.observed.is_empty() {
        plan.push(Action::Cleanup);
        return;
    }
    // Removing a sandbox removes what was in it; containers without one are removed by themselves.
    for sandbox in &view.observed.sandboxes {
        plan.push(Action::RemoveSandbox { id: sandbox.id.clone() });
    }
    let homeless = view.observed.containers.iter().filter(|instance| {
        let mut sandboxes = view.observed.sandboxes.iter();
        !sandboxes.any(|sandbox| sandbox.id == instance.sandbox_id)
    });
    for instance in homeless {
        plan.push(Action::RemoveContainer {
            id: instance.id.clone(),
        });
    }
}
