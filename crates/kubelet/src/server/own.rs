//! Upstream's `/metrics`: what the kubelet has and does.

use std::sync::Arc;

use cri::v1::{self, ContainerState};
use metrics::Page as _;

use super::page::{Metric, Page};
use super::stats;
use crate::moment::Moment;
use crate::pod::Pod;
use crate::shared::Shared;
use crate::static_pods::NodePods;

const NODE_NAME: Metric = ("kubelet_node_name", "gauge", "The node's name. The count is always 1.");
const RUNNING_PODS: Metric = (
    "kubelet_running_pods",
    "gauge",
    "Number of pods that have a running pod sandbox",
);
const RUNNING_CONTAINERS: Metric = (
    "kubelet_running_containers",
    "gauge",
    "Number of containers currently running",
);
const DESIRED_PODS: Metric = (
    "kubelet_desired_pods",
    "gauge",
    "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
);
const ACTIVE_PODS: Metric = (
    "kubelet_active_pods",
    "gauge",
    "The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.",
);
const MIRROR_PODS: Metric = (
    "kubelet_mirror_pods",
    "gauge",
    "The number of mirror pods the kubelet will try to create (one per admitted static pod)",
);
const VOLUMES: Metric = (
    "volume_manager_total_volumes",
    "gauge",
    "Number of volumes in Volume Manager",
);

pub async fn page(shared: &Arc<Shared>, pods: &NodePods) -> String {
    let mut page = Page::default();
    page.add(
        NODE_NAME,
        &metrics::labels(&[("node", shared.node_name.as_str())]),
        "1",
        None,
    );
    let pods: Vec<Arc<Pod>> = pods.all().iter().map(|object| object.pod.clone()).collect();
    count_pods(&mut page, &pods);
    let figures = stats::volume_figures(shared, Moment::now()).await;
    let set_up = figures.iter().map(|(_, volumes)| volumes.len()).sum();
    count_volumes(&mut page, &pods, set_up);
    count_running(&mut page, shared).await;
    let mut text = page.text();
    shared.figures.write(&mut text);
    text.push_str(&stats::claim_metrics(&figures));
    metrics::process::write(&mut text);
    text
}

fn count_pods(page: &mut Page, pods: &[Arc<Pod>]) {
    let mut add = |metric: Metric, is_static: bool, wanted: &dyn Fn(&Pod) -> bool| {
        let count = pods
            .iter()
            .filter(|pod| pod.is_static() == is_static && wanted(pod))
            .count();
        let is_static = if is_static { "true" } else { "" };
        page.add(
            metric,
            &metrics::labels(&[("static", is_static)]),
            &count.to_string(),
            None,
        );
    };
    for is_static in [false, true] {
        add(DESIRED_PODS, is_static, &|_| true);
        add(ACTIVE_PODS, is_static, &|pod| !pod.is_terminal());
    }
    let mirrors = pods.iter().filter(|pod| pod.is_static()).count();
    page.add(MIRROR_PODS, "", &mirrors.to_string(), None);
}

/// Those that pods want, and those that are set up.
fn count_volumes(page: &mut Page, pods: &[Arc<Pod>], actual: usize) {
    let wanted = pods.iter().filter(|pod| !pod.is_terminal());
    let desired: usize = wanted.map(|pod| pod.spec.volumes.len()).sum();
    for (state, count) in [("desired_state_of_world", desired), ("actual_state_of_world", actual)] {
        let labels = metrics::labels(&[("state", state)]);
        page.add(VOLUMES, &labels, &count.to_string(), None);
    }
}

async fn count_running(page: &mut Page, shared: &Shared) {
    let runtime = &*shared.runtime;
    if let Ok(listed) = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await {
        let ready = |sandbox: &&v1::PodSandbox| sandbox.state() == v1::PodSandboxState::SandboxReady;
        let count = listed.items.iter().filter(ready).count();
        page.add(RUNNING_PODS, "", &count.to_string(), None);
    }
    if let Ok(listed) = runtime.list_containers(v1::ListContainersRequest::default()).await {
        for (state, shown) in [
            (ContainerState::ContainerCreated, "created"),
            (ContainerState::ContainerRunning, "running"),
            (ContainerState::ContainerExited, "exited"),
            (ContainerState::ContainerUnknown, "unknown"),
        ] {
            let count = listed
                .containers
                .iter()
                .filter(|container| container.state() == state)
                .count();
            if count > 0 {
                let labels = metrics::labels(&[("container_state", shown)]);
                page.add(RUNNING_CONTAINERS, &labels, &count.to_string(), None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Origin;

    #[test]
    fn static_pods_are_counted_apart() {
        let api: Pod = serde_saphyr::from_str("status: {phase: Failed}").unwrap();
        let own = Pod {
            origin: Origin::Static { mirror_uid: None },
            ..Pod::default()
        };
        let mut page = Page::default();
        count_pods(&mut page, &[Arc::new(api), Arc::new(own)]);
        let text = page.text();
        for line in [
            "kubelet_desired_pods{static=\"\"} 1",
            "kubelet_desired_pods{static=\"true\"} 1",
            "kubelet_active_pods{static=\"\"} 0",
            "kubelet_mirror_pods 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }
}
