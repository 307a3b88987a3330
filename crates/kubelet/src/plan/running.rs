//! Planning for a pod that is to run.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Action, Image, KillReason, Plan, PodView, Unhealthy, Volumes};
use crate::moment::Moment;
use crate::observed::{Instance, Sandbox, State};
use crate::pod::resources::container_compute;
use crate::pod::{Container, ContainerKind, Probe, RestartAction};
use crate::resize::needs_restart;

pub(super) fn plan(view: PodView<'_>, now: Moment, plan: &mut Plan) {
    mount_volumes(view, now, plan);
    let Some(sandbox) = view.observed.current_sandbox() else {
        replace_sandbox(view, now, plan);
        return;
    };
    kill_strays(view, sandbox, plan);
    for container in &view.pod.spec.ephemeral_containers {
        advance(view, ContainerKind::Ephemeral, container, now, plan);
    }
    if end_stale(view, plan) {
        return;
    }
    if initialize(view, now, plan) {
        start_in_order(view, now, plan);
    }
    resize(view, plan);
    prune(view, plan);
}

/// Ends what a rule wants to be started again, without a grace period. True until everything has ended.
fn end_stale(view: PodView<'_>, plan: &mut Plan) -> bool {
    view.stale()
        .for_each(|instance| plan.kill(instance, Duration::ZERO, KillReason::RestartAll));
    view.progress.reset.as_ref().is_some_and(|reset| !reset.settled)
}

/// Containers that stay get their new resources as they run; others are started again with them.
fn resize(view: PodView<'_>, plan: &mut Plan) {
    if !view.is_resizing() {
        return;
    }
    let pod_changes = view.progress.pod_applied != Some(view.pod_target());
    if pod_changes || view.resizable().next().is_some() {
        plan.push(Action::Resize);
    }
    for (instance, container, applied) in view.outdated() {
        if needs_restart(container, applied, container_compute(view.pod, container)) {
            plan.kill(instance, view.pod.grace(), KillReason::Resize);
        }
    }
}

fn mount_volumes(view: PodView<'_>, now: Moment, plan: &mut Plan) {
    match &view.progress.volumes {
        Volumes::Mounted => {}
        Volumes::Failed(failure) if now < failure.retry_at() => plan.wake(failure.retry_at()),
        Volumes::Unknown | Volumes::Unmounted | Volumes::Failed(_) => plan.push(Action::MountVolumes),
    }
}

/// Without a sandbox: what is left of an old one ends first, then there is a new one.
fn replace_sandbox(view: PodView<'_>, now: Moment, plan: &mut Plan) {
    let alive: Vec<_> = view
        .observed
        .containers
        .iter()
        .filter(|instance| instance.is_alive())
        .collect();
    for instance in &alive {
        plan.kill(instance, view.pod.grace(), KillReason::SandboxLost);
    }
    let retry_at = view.progress.sandbox.as_ref().map(|failure| failure.retry_at());
    match retry_at.filter(|at| now < *at) {
        Some(at) => plan.wake(at),
        None if alive.is_empty() => {
            let attempt = view.observed.sandboxes.first().map_or(0, |sandbox| sandbox.attempt + 1);
            plan.push(Action::CreateSandbox { attempt });
            ensure_first_images(view, plan);
        }
        None => {}
    }
}

/// The images of what starts first are looked for while there is no sandbox yet.
fn ensure_first_images(view: PodView<'_>, plan: &mut Plan) {
    let spec = &view.pod.spec;
    let first = match spec.init_containers.first() {
        Some(first) => std::slice::from_ref(first),
        None => spec.containers.as_slice(),
    };
    for container in first {
        let image = view.progress.container(&container.name).map(|progress| &progress.image);
        if matches!(image, None | Some(Image::Unknown)) {
            plan.push(Action::EnsureImage {
                container: container.name.clone(),
            });
        }
    }
}

/// Containers that still run in an earlier sandbox, or that the pod does not have.
fn kill_strays(view: PodView<'_>, sandbox: &Sandbox, plan: &mut Plan) {
    let strays = view.observed.containers.iter().filter(|instance| {
        let known = view.pod.container(&instance.name).is_some();
        instance.is_alive() && (instance.sandbox_id != sandbox.id || !known)
    });
    for instance in strays {
        plan.kill(instance, view.pod.grace(), KillReason::SandboxLost);
    }
}

/// Runs the init containers in order; true when the app containers may start.
fn initialize(view: PodView<'_>, now: Moment, plan: &mut Plan) -> bool {
    let initialized = view.is_initialized();
    for container in &view.pod.spec.init_containers {
        let kind = container.init_kind();
        if initialized {
            if kind == ContainerKind::Sidecar {
                advance(view, kind, container, now, plan);
            }
            continue;
        }
        let instance = view.current(&container.name);
        let succeeded = instance.and_then(Instance::exit).is_some_and(|exit| exit.code == 0);
        if kind == ContainerKind::Init && succeeded {
            continue;
        }
        advance(view, kind, container, now, plan);
        let started = instance.is_some_and(|instance| view.is_started(container, instance));
        if kind == ContainerKind::Init || !started {
            return false;
        }
    }
    true
}

/// The app containers start one after the other, each once the postStart hook of the one before it has returned.
fn start_in_order(view: PodView<'_>, now: Moment, plan: &mut Plan) {
    let mut blocked = false;
    for container in &view.pod.spec.containers {
        let before = plan.actions.len();
        advance(view, ContainerKind::App, container, now, plan);
        let starts = |action: &Action| matches!(action, Action::StartContainer { .. });
        if blocked {
            let kept = plan
                .actions
                .split_off(before)
                .into_iter()
                .filter(|action| !starts(action));
            plan.actions.extend(kept);
        }
        blocked |= plan.actions[before..].iter().any(starts) || view.progress.is_starting(&container.name);
    }
}

/// The next step for one container.
fn advance(view: PodView<'_>, kind: ContainerKind, container: &Container, now: Moment, plan: &mut Plan) {
    if view.progress.is_starting(&container.name) {
        return;
    }
    let latest = view.observed.latest(&container.name);
    let Some(instance) = view.current(&container.name) else {
        if let Some(stale) = latest.filter(|latest| view.is_stale(latest)) {
            match view.crash_wait(stale, now) {
                Some(until) => plan.wake(until),
                None => start(view, container, now, plan),
            }
            return;
        }
        // An instance in an earlier sandbox counts only if it has ended for good.
        let ended = latest.and_then(Instance::exit);
        if ended.is_none_or(|exit| kind == ContainerKind::Init || view.restarts(kind, container, exit.code)) {
            start(view, container, now, plan);
        }
        return;
    };
    match &instance.state {
        State::Running => check_health(view, container, instance, plan),
        State::Unknown => plan.kill(instance, view.pod.grace(), KillReason::UnknownState),
        State::Created => start(view, container, now, plan),
        // It waits for the others to have been started once.
        State::Exited(exit) if restarts_all(kind, container, exit.code) => {}
        State::Exited(exit) if view.restarts(kind, container, exit.code) => match view.crash_wait(instance, now) {
            Some(until) => plan.wake(until),
            None => start(view, container, now, plan),
        },
        State::Exited(_) => {}
    }
}

fn restarts_all(kind: ContainerKind, container: &Container, exit_code: i32) -> bool {
    kind != ContainerKind::Ephemeral && container.restart_rule(exit_code) == Some(RestartAction::RestartAllContainers)
}

fn check_health(view: PodView<'_>, container: &Container, instance: &Instance, plan: &mut Plan) {
    let verdicts = view.progress.verdicts(&container.name, &instance.id);
    let probe_grace = |probe: &Option<Probe>| {
        let own = probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
        own.map_or(view.pod.grace(), |seconds| Duration::from_secs(seconds.max(0) as u64))
    };
    match verdicts.and_then(|verdicts| verdicts.unhealthy) {
        Some(Unhealthy::Liveness) => {
            plan.kill(instance, probe_grace(&container.liveness_probe), KillReason::Liveness);
        }
        Some(Unhealthy::Startup) => {
            plan.kill(instance, probe_grace(&container.startup_probe), KillReason::Startup);
        }
        None if !instance.hash.is_empty() && instance.hash != container.hash() => {
            plan.kill(instance, view.pod.grace(), KillReason::DefinitionChanged);
        }
        None => {}
    }
}

/// First the image, then the container; both wait after a failure.
fn start(view: PodView<'_>, container: &Container, now: Moment, plan: &mut Plan) {
    let progress = view.progress.container(&container.name);
    let failure = progress.and_then(|progress| progress.failure.as_ref());
    if let Some(at) = failure.map(|failure| failure.retry_at()).filter(|at| now < *at) {
        plan.wake(at);
        return;
    }
    match progress.map(|progress| &progress.image) {
        Some(Image::Ready(_)) if view.progress.volumes == Volumes::Mounted => plan.push(Action::StartContainer {
            container: container.name.clone(),
            attempt: view.next_attempt(&container.name),
        }),
        Some(Image::Ready(_)) => {}
        Some(Image::Failed(failure)) if now < failure.retry_at() => {
            let shown = failure.failed_at.plus(crate::limits::PULL_ERROR_SHOWN);
            plan.wake(if now < shown { shown } else { failure.retry_at() });
        }
        _ => plan.push(Action::EnsureImage {
            container: container.name.clone(),
        }),
    }
}

/// Keeps the newest instance of every container and the one before it, for its log and its last state.
fn prune(view: PodView<'_>, plan: &mut Plan) {
    let mut kept = BTreeSet::new();
    for (index, instance) in view.observed.containers.iter().enumerate() {
        let newer = view.observed.containers[..index]
            .iter()
            .filter(|newer| newer.name == instance.name);
        let reset = view.progress.reset.as_ref();
        let is_source = reset.is_some_and(|reset| reset.source == instance.id);
        if instance.is_alive() || is_source || newer.count() < 2 {
            kept.insert(instance.sandbox_id.as_str());
        } else {
            plan.push(Action::RemoveContainer {
                id: instance.id.clone(),
            });
        }
    }
    for sandbox in view.observed.sandboxes.iter().skip(1) {
        if !kept.contains(sandbox.id.as_str()) {
            plan.push(Action::RemoveSandbox { id: sandbox.id.clone() });
        }
    }
}
