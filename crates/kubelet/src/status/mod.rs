//! A pod's status, computed from what is known of it.
//!
//! [`compute`] is pure; [`patch`] turns the difference from the status in the API into a patch that touches nothing
//! else, so that what others wrote, and what we do not know, stays.

mod conditions;
mod containers;
pub mod patch;
mod phase;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::features::RuntimeFeatures;
use crate::moment::Moment;
use crate::plan::{PodView, Stop};
use crate::pod::{ContainerUser, KnownCondition, Resources, Terminated, resources};
pub use phase::Phase;

/// What a status says that is not about the pod alone.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The node's addresses, the primary one first.
    pub host_ips: Vec<String>,
    /// The scheme of container IDs, such as `containerd`.
    pub runtime_name: String,
    pub features: Arc<RuntimeFeatures>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    pub phase: Phase,
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    #[serde(rename = "hostIPs", skip_serializing_if = "Vec::is_empty")]
    pub host_ips: Vec<Ip>,
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<Ip>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Moment>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
    pub qos_class: String,
    /// What the pod was granted as a whole.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_resources: BTreeMap<String, String>,
    /// What the pod has as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ip {
    pub ip: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    pub status: &'static str,
    pub last_probe_time: Option<Moment>,
    pub last_transition_time: Moment,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    pub state: ContainerState,
    pub last_state: ContainerState,
    pub ready: bool,
    pub restart_count: u32,
    pub image: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    pub started: bool,
    /// What it was granted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_resources: BTreeMap<String, String>,
    /// What it runs with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<MountStatus>,
    /// Who its first process was started as; none where the runtime does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<ContainerUser>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContainerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waiting {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub started_at: Option<Moment>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountStatus {
    pub name: String,
    pub mount_path: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<String>,
}

/// The status of a pod now. `known` are the conditions as they last were; they date the new ones.
pub fn compute(view: PodView<'_>, around: &Surroundings, known: &[KnownCondition], now: Moment) -> PodStatus {
    let pod = view.pod;
    let mut status = PodStatus {
        observed_generation: pod.metadata.generation,
        start_time: Some(pod.status.start_time.unwrap_or(now)),
        qos_class: resources::qos(pod).to_string(),
        ..PodStatus::default()
    };
    let granted = resources::pod_resources(pod);
    status.allocated_resources.clone_from(&granted.requests);
    status.resources = Some(match &pod.status.resources {
        Some(before) if view.is_resizing() => before.clone(),
        _ => granted,
    });
    containers::fill(&mut status, view, around, now);
    status.phase = phase::compute(view, &status);
    (status.reason, status.message) = reason_of(view);
    status.host_ips = around.host_ips.iter().cloned().map(|ip| Ip { ip }).collect();
    status.host_ip = around.host_ips.first().cloned().unwrap_or_default();
    status.pod_ips = pod_ips(view, around).into_iter().map(|ip| Ip { ip }).collect();
    status.pod_ip = status.pod_ips.first().map(|first| first.ip.clone()).unwrap_or_default();
    status.conditions = conditions::compute(view, &status, known, now);
    status
}

/// Nothing of the pod is left to run: its phase is final.
pub fn is_over(view: PodView<'_>) -> bool {
    let observed = view.observed;
    view.is_ending()
        && !view.is_creating()
        && !observed.containers.iter().any(|instance| instance.is_alive())
        && !observed.sandboxes.iter().any(|sandbox| sandbox.ready)
}

fn reason_of(view: PodView<'_>) -> (String, String) {
    match &view.progress.stop {
        Some(Stop::Deadline) => (
            "DeadlineExceeded".to_owned(),
            "Pod was active on the node longer than the specified deadline".to_owned(),
        ),
        Some(Stop::Evicted { message }) => ("Evicted".to_owned(), message.clone()),
        Some(Stop::Rejected { reason, message }) => (reason.clone(), format!("Pod was rejected: {message}")),
        Some(Stop::Gone) | None => (view.pod.status.reason.clone(), view.pod.status.message.clone()),
    }
}

/// A pod keeps showing the addresses it had once its sandbox is gone.
pub fn pod_ips(view: PodView<'_>, around: &Surroundings) -> Vec<String> {
    let newest = view.observed.sandboxes.first();
    match newest {
        Some(_) if view.pod.spec.host_network => around.host_ips.clone(),
        Some(sandbox) if !sandbox.ips.is_empty() => sandbox.ips.clone(),
        _ => view.pod.status.pod_ips.iter().map(|known| known.ip.clone()).collect(),
    }
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
