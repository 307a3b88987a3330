//! The conditions the kubelet owns. Those of others, such as readiness gates, are read but never written.

use super::{Condition, ContainerStatus, Phase, PodStatus};
use crate::moment::Moment;
use crate::plan::{PodView, Stop, Task};
use crate::pod::{ContainerKind, KnownCondition};

/// A condition before it is dated.
struct Finding {
    kind: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn yes(kind: &'static str) -> Finding {
        Finding {
            kind,
            status: true,
            reason: "",
            message: String::new(),
        }
    }

    fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Finding {
        Finding {
            kind,
            status: false,
            reason,
            message: message.into(),
        }
    }
}

pub(super) fn compute(view: PodView<'_>, status: &PodStatus, known: &[KnownCondition], now: Moment) -> Vec<Condition> {
    let containers = containers_ready("ContainersReady", view, status);
    let findings = [
        sandbox_ready(view),
        initialized(view, status),
        ready(view, status, &containers),
        containers,
        Finding::yes("PodScheduled"),
    ];
    let all = findings
        .into_iter()
        .chain(restarting(view, status))
        .chain(resizes(view))
        .chain(disrupted(view));
    all.map(|finding| dated(view, finding, known, now)).collect()
}

/// A condition keeps its time as long as its status stays.
fn dated(view: PodView<'_>, finding: Finding, known: &[KnownCondition], now: Moment) -> Condition {
    let status = if finding.status { "True" } else { "False" };
    let known = known
        .iter()
        .find(|known| known.kind == finding.kind && known.status == status);
    Condition {
        kind: finding.kind,
        observed_generation: view.pod.metadata.generation,
        status,
        last_probe_time: None,
        last_transition_time: known.and_then(|known| known.last_transition_time).unwrap_or(now),
        reason: finding.reason.to_owned(),
        message: finding.message,
    }
}

/// Whether a rule has all containers started again; only of pods that have such a rule.
fn restarting(view: PodView<'_>, status: &PodStatus) -> Option<Finding> {
    const KIND: &str = "AllContainersRestarting";
    if !view.pod.restarts_all() {
        return None;
    }
    Some(match status.phase {
        Phase::Succeeded => Finding::no(KIND, "PodCompleted", ""),
        Phase::Failed => Finding::no(KIND, "PodFailed", ""),
        _ if !view.is_ending() && view.is_restarting_all() => Finding {
            reason: "RestartAllContainersStarted",
            message: "container exited with restart policy rule".to_owned(),
            ..Finding::yes(KIND)
        },
        _ => Finding::no(KIND, "", ""),
    })
}

/// Tells controllers that the pod did not fail by itself.
fn disrupted(view: PodView<'_>) -> Option<Finding> {
    let Some(Stop::Evicted { message }) = &view.progress.stop else {
        return None;
    };
    Some(Finding {
        reason: "TerminationByKubelet",
        message: message.clone(),
        ..Finding::yes("DisruptionTarget")
    })
}

/// These are there only while they hold.
fn resizes(view: PodView<'_>) -> impl Iterator<Item = Finding> {
    let pending = view.progress.resize_pending.as_ref().map(|pending| Finding {
        reason: pending.reason,
        message: pending.message.clone(),
        ..Finding::yes("PodResizePending")
    });
    let failure = view.progress.failed.get(&Task::Resize);
    let going_on = (!view.is_ending() && view.is_resizing()).then(|| Finding {
        reason: failure.map_or("", |_| "Error"),
        message: failure.map(|failure| failure.message.clone()).unwrap_or_default(),
        ..Finding::yes("PodResizeInProgress")
    });
    pending.into_iter().chain(going_on)
}

fn sandbox_ready(view: PodView<'_>) -> Finding {
    let sandbox = view.observed.current_sandbox();
    match sandbox.is_some_and(|sandbox| view.pod.spec.host_network || !sandbox.ips.is_empty()) {
        true => Finding::yes("PodReadyToStartContainers"),
        false => Finding::no("PodReadyToStartContainers", "", ""),
    }
}

fn initialized(view: PodView<'_>, status: &PodStatus) -> Finding {
    let kind = "Initialized";
    if status.phase == Phase::Succeeded {
        return Finding {
            reason: "PodCompleted",
            ..Finding::yes(kind)
        };
    }
    let any_created = status
        .container_statuses
        .iter()
        .any(|container| !container.container_id.is_empty());
    let containers = view
        .pod
        .spec
        .init_containers
        .iter()
        .zip(&status.init_container_statuses);
    let incomplete: Vec<&str> = containers
        .filter(|(container, status)| match container.init_kind() {
            ContainerKind::Sidecar => !status.started && !any_created,
            _ => !status.ready,
        })
        .map(|(container, _)| container.name.as_str())
        .collect();
    match incomplete.is_empty() {
        true => Finding::yes(kind),
        false => Finding::no(
            kind,
            "ContainersNotInitialized",
            format!("containers with incomplete status: {}", list(&incomplete)),
        ),
    }
}

fn containers_ready(kind: &'static str, view: PodView<'_>, status: &PodStatus) -> Finding {
    match status.phase {
        Phase::Succeeded => return Finding::no(kind, "PodCompleted", ""),
        Phase::Failed => return Finding::no(kind, "PodFailed", ""),
        Phase::Pending | Phase::Running => {}
    }
    let init = view
        .pod
        .spec
        .init_containers
        .iter()
        .zip(&status.init_container_statuses);
    let sidecars = init.filter(|(container, _)| container.init_kind() == ContainerKind::Sidecar);
    let all = sidecars.map(|(_, status)| status).chain(&status.container_statuses);
    let unready: Vec<&str> = all
        .filter(|container: &&ContainerStatus| !container.ready)
        .map(|container| container.name.as_str())
        .collect();
    match unready.is_empty() {
        true => Finding::yes(kind),
        false => Finding::no(
            kind,
            "ContainersNotReady",
            format!("containers with unready status: {}", list(&unready)),
        ),
    }
}

fn ready(view: PodView<'_>, status: &PodStatus, containers: &Finding) -> Finding {
    let kind = "Ready";
    if !containers.status {
        return containers_ready(kind, view, status);
    }
    let gates = view.pod.spec.readiness_gates.iter().filter_map(|gate| {
        let gate = &gate.condition_type;
        let condition = view.pod.status.conditions.iter().find(|known| known.kind == *gate);
        match condition.map(|condition| condition.status.as_str()) {
            Some("True") => None,
            Some(status) => Some(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {status}"
            )),
            None => Some(format!(
                "corresponding condition of pod readiness gate {gate:?} does not exist."
            )),
        }
    });
    let closed: Vec<String> = gates.collect();
    match closed.is_empty() {
        true => Finding::yes(kind),
        false => Finding::no(kind, "ReadinessGatesNotReady", closed.join(", ")),
    }
}

fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}
