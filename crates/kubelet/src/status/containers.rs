//! The statuses of containers: waiting, running or terminated, and what was before.

use std::collections::BTreeMap;

use super::{ContainerStatus, MountStatus, PodStatus, Running, Surroundings, Waiting};
use crate::limits;
use crate::moment::Moment;
use crate::observed::{Instance, State};
use crate::plan::{Image, PodView};
use crate::pod::resources::container_compute;
use crate::pod::{Container, ContainerKind, ContainerUser, KnownContainer, Resources, Terminated, VolumeMount};

pub(super) fn fill(status: &mut PodStatus, view: PodView<'_>, around: &Surroundings, now: Moment) {
    for (kind, container) in view.pod.all_containers() {
        let list = match kind {
            ContainerKind::Init | ContainerKind::Sidecar => &mut status.init_container_statuses,
            ContainerKind::App => &mut status.container_statuses,
            ContainerKind::Ephemeral => &mut status.ephemeral_container_statuses,
        };
        list.push(container_status(view, kind, container, around, now));
    }
}

fn container_status(
    view: PodView<'_>,
    kind: ContainerKind,
    container: &Container,
    around: &Surroundings,
    now: Moment,
) -> ContainerStatus {
    let Some(instance) = view.observed.latest(&container.name) else {
        return without_instance(view, container, around, now);
    };
    let id = |instance: &Instance| format!("{}://{}", around.runtime_name, instance.id);
    let mut status = ContainerStatus {
        name: container.name.clone(),
        restart_count: instance.attempt,
        image: Some(&instance.image)
            .filter(|image| !image.is_empty())
            .unwrap_or(&container.image)
            .clone(),
        image_id: instance.image_ref.clone(),
        container_id: id(instance),
        volume_mounts: mounts(container, around),
        user: instance.user.clone().map(|linux| ContainerUser { linux }),
        allocated_resources: allocated(kind, container),
        resources: current_resources(view, kind, container, instance),
        ..ContainerStatus::default()
    };
    let exited = |instance: &Instance| terminated(instance, id(instance));
    let before = view.observed.previous(&container.name).and_then(exited);
    let known = view
        .pod
        .known_container(&container.name)
        .and_then(|known| known.last_state.terminated.clone());
    status.last_state.terminated = before.or_else(|| known.filter(|_| instance.attempt > 0));
    match &instance.state {
        State::Running => {
            status.state.running = Some(Running {
                started_at: instance.started_at.or(Some(instance.created_at)),
            });
        }
        State::Created | State::Unknown => status.state.waiting = Some(waiting(view, container, now)),
        State::Exited(exit) => {
            let again = !view.is_ending() && view.restarts(kind, container, exit.code);
            let wait = again.then(|| restart_wait(view, container, instance, now)).flatten();
            let ended = terminated(instance, id(instance));
            match wait {
                Some(wait) => {
                    status.state.waiting = Some(wait);
                    status.last_state.terminated = ended;
                }
                None => status.state.terminated = ended,
            }
        }
    }
    status.started = view.is_started(container, instance);
    status.ready = match kind {
        ContainerKind::Init => instance.exit().is_some_and(|exit| exit.code == 0),
        _ => view.is_ready(container, instance),
    };
    status
}

fn allocated(kind: ContainerKind, container: &Container) -> BTreeMap<String, String> {
    match kind {
        ContainerKind::Ephemeral => BTreeMap::new(),
        _ => container.resources.requests.clone(),
    }
}

/// What a container has now: what it was granted, or what it had before while that is not in force yet.
fn current_resources(
    view: PodView<'_>,
    kind: ContainerKind,
    container: &Container,
    instance: &Instance,
) -> Option<Resources> {
    if kind == ContainerKind::Ephemeral {
        return None;
    }
    let applied = view.progress.applied(&container.name, &instance.id);
    let outdated = applied.is_some_and(|applied| applied != container_compute(view.pod, container));
    let known = view.pod.known_container(&container.name);
    let before = known.and_then(|known| known.resources.clone());
    Some(
        before
            .filter(|_| outdated && instance.is_running())
            .unwrap_or_else(|| container.resources.clone()),
    )
}

/// A container the runtime does not know: not made yet, or forgotten since.
fn without_instance(view: PodView<'_>, container: &Container, around: &Surroundings, now: Moment) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        volume_mounts: mounts(container, around),
        ..ContainerStatus::default()
    };
    let known = view.pod.known_container(&container.name);
    if let Some(known) = known.filter(|known| known.has_run()) {
        status.restart_count = known.restart_count;
        status.last_state.terminated = last_end(known);
        if let (Some(ended), true) = (&known.state.terminated, view.is_ending() || known.ready) {
            status.image.clone_from(&known.image);
            status.image_id.clone_from(&known.image_id);
            status.container_id.clone_from(&known.container_id);
            status.ready = known.ready;
            status.user.clone_from(&known.user);
            status.last_state.terminated = known.last_state.terminated.clone();
            status.state.terminated = Some(ended.clone());
            return status;
        }
    }
    status.state.waiting = Some(waiting(view, container, now));
    status
}

/// How the last instance of a container ended that the runtime no longer knows.
fn last_end(known: &KnownContainer) -> Option<Terminated> {
    let lost = known.state.running.is_some().then(|| Terminated {
        exit_code: 137,
        reason: "ContainerStatusUnknown".to_owned(),
        message: "The container could not be located when the pod was terminated".to_owned(),
        container_id: known.container_id.clone(),
        ..Terminated::default()
    });
    let ended = known.state.terminated.clone().or(lost);
    ended.or_else(|| known.last_state.terminated.clone())
}

/// Why a container does not run yet.
fn waiting(view: PodView<'_>, container: &Container, now: Moment) -> Waiting {
    let default = match view.pod.spec.init_containers.is_empty() {
        true => "ContainerCreating",
        false => "PodInitializing",
    };
    failure(view, container, now).unwrap_or_else(|| Waiting {
        reason: default.to_owned(),
        message: String::new(),
    })
}

/// Why a container that has ended and is to start again does not run yet; none when its start is imminent.
fn restart_wait(view: PodView<'_>, container: &Container, instance: &Instance, now: Moment) -> Option<Waiting> {
    if view.crash_wait(instance, now).is_none() {
        return failure(view, container, now);
    }
    let backoff = view.progress.container(&container.name)?.backoff?;
    Some(Waiting {
        reason: "CrashLoopBackOff".to_owned(),
        message: crash_message(backoff.delay, container, view),
    })
}

pub fn crash_message(delay: std::time::Duration, container: &Container, view: PodView<'_>) -> String {
    let delay = crate::text::go_duration(delay);
    let (container, pod) = (&container.name, view.pod.full_name());
    format!("back-off {delay} restarting failed container={container} pod={pod}")
}

fn failure(view: PodView<'_>, container: &Container, now: Moment) -> Option<Waiting> {
    let progress = view.progress.container(&container.name)?;
    if let Image::Failed(failure) = &progress.image {
        let recent = now.since(failure.failed_at) < limits::PULL_ERROR_SHOWN;
        if failure.reason == "ErrImagePull" && !recent {
            return Some(Waiting {
                reason: "ImagePullBackOff".to_owned(),
                message: format!(
                    "Back-off pulling image {:?}: {}: {}",
                    container.image, failure.reason, failure.message
                ),
            });
        }
    }
    let failed = match &progress.image {
        Image::Failed(failure) => Some(failure),
        _ => progress.failure.as_ref(),
    };
    failed.map(|failure| Waiting {
        reason: failure.reason.clone(),
        message: failure.message.clone(),
    })
}

fn terminated(instance: &Instance, container_id: String) -> Option<Terminated> {
    let exit = instance.exit()?;
    Some(Terminated {
        exit_code: exit.code,
        signal: exit.signal,
        reason: exit.reason.clone(),
        message: exit.message.clone(),
        started_at: instance.started_at,
        finished_at: exit.finished_at,
        container_id,
    })
}

fn mounts(container: &Container, around: &Surroundings) -> Vec<MountStatus> {
    let supported = || around.features.recursive_read_only_mounts("");
    // What cannot be resolved keeps the container from starting, and is told there.
    let mode = |mount: &VolumeMount| match mount.is_recursive_read_only(supported()) {
        Ok(true) => "Enabled",
        Ok(false) | Err(_) => "Disabled",
    };
    let status = |mount: &VolumeMount| MountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only,
        recursive_read_only: mount.read_only.then(|| mode(mount).to_owned()),
    };
    container.volume_mounts.iter().map(status).collect()
}
