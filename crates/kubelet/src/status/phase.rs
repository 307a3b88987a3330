//! The phase: one word for the life of a pod.

use serde::Serialize;

use super::{ContainerStatus, PodStatus, is_over};
use crate::plan::{Outcome, PodView, Stop};
use crate::pod::ContainerKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

pub(super) fn compute(view: PodView<'_>, status: &PodStatus) -> Phase {
    // What the API once called final stays so.
    match view.pod.status.phase.as_str() {
        "Succeeded" => return Phase::Succeeded,
        "Failed" => return Phase::Failed,
        _ => {}
    }
    if matches!(
        view.progress.stop,
        Some(Stop::Deadline | Stop::Evicted { .. } | Stop::Rejected { .. })
    ) {
        return Phase::Failed;
    }
    let over = is_over(view);
    match view.outcome() {
        // Sidecars may still be ending; the pod is finished when they have.
        Some(_) if !over => Phase::Running,
        Some(Outcome::Succeeded) => Phase::Succeeded,
        Some(Outcome::Failed) => Phase::Failed,
        None if over => ended(status),
        None => unfinished(view, status),
    }
}

/// A pod that was made to end has succeeded only if all its containers have.
fn ended(status: &PodStatus) -> Phase {
    let succeeded = |container: &ContainerStatus| {
        let exit = container.state.terminated.as_ref();
        exit.is_some_and(|exit| exit.exit_code == 0)
    };
    match status.container_statuses.iter().all(succeeded) {
        true => Phase::Succeeded,
        false => Phase::Failed,
    }
}

fn unfinished(view: PodView<'_>, status: &PodStatus) -> Phase {
    let mut init = view
        .pod
        .spec
        .init_containers
        .iter()
        .zip(&status.init_container_statuses);
    let initializing = init.any(|(container, status)| match container.init_kind() {
        ContainerKind::Sidecar => !status.started,
        _ => !status.ready,
    });
    // Once an app container has been started, a sidecar that restarts does not make the pod pending again.
    let has_run = |container: &ContainerStatus| {
        let (state, last) = (&container.state, &container.last_state);
        state.running.is_some() || state.terminated.is_some() || last.terminated.is_some()
    };
    let all_have_run = status.container_statuses.iter().all(has_run);
    let any_has_run = status.container_statuses.iter().any(has_run);
    match (initializing && !any_has_run, all_have_run) {
        (true, _) | (_, false) => Phase::Pending,
        (false, true) => Phase::Running,
    }
}
