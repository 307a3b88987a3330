//! Everything the runtime has, listed: once at the start, to adopt what runs, and then to find out what changed.

use std::collections::HashMap;

use cri::{Runtime, v1};
use futures_util::StreamExt;

use crate::container::labels;
use crate::inspect;
use crate::moment::Moment;
use crate::observed::Observed;
use crate::owners::RuntimeObject;
use crate::pod::{Container, Metadata, Pod};

/// Questions about single containers that are put at once when everything is listed.
const QUESTIONS_AT_ONCE: usize = 16;

/// What the runtime has of one pod.
#[derive(Debug, Default)]
pub struct Inventory {
    /// As far as labels tell; used where the API no longer knows the pod.
    pub pod: Pod,
    pub observed: Observed,
}

/// The states of everything, by identifier: the pod's UID, what it is, and its state as the CRI numbers it.
pub type States = HashMap<String, (String, RuntimeObject, i32)>;

pub async fn states(runtime: &dyn Runtime) -> cri::Result<States> {
    let (sandboxes, containers) = list(runtime).await?;
    let mut states = States::new();
    for sandbox in sandboxes {
        let uid = sandbox.metadata.unwrap_or_default().uid;
        states.insert(sandbox.id, (uid, RuntimeObject::Sandbox, sandbox.state));
    }
    for container in containers {
        let uid = container.labels.get(labels::POD_UID).cloned().unwrap_or_default();
        let object = RuntimeObject::ContainerIn(container.pod_sandbox_id);
        states.insert(container.id, (uid, object, container.state));
    }
    Ok(states)
}

/// Everything by pod UID, with all details. What is not labelled as a pod's is not ours.
pub async fn take(runtime: &dyn Runtime) -> cri::Result<HashMap<String, Inventory>> {
    let (sandboxes, containers) = list(runtime).await?;
    let mut all: HashMap<String, Inventory> = HashMap::new();
    for sandbox in &sandboxes {
        let Some(uid) = sandbox.labels.get(labels::POD_UID) else {
            continue;
        };
        let inventory = all.entry(uid.clone()).or_default();
        inventory.pod.metadata = identity(&sandbox.labels);
    }
    // The questions own what they are about: borrowed ones would make this future impossible to spawn.
    let ours = sandboxes
        .into_iter()
        .filter_map(|sandbox| Some((sandbox.labels.get(labels::POD_UID)?.clone(), sandbox.id)));
    let mut details = futures_util::stream::iter(ours.collect::<Vec<_>>())
        .map(|(uid, id)| async move { (uid, inspect::sandbox(runtime, &id).await) })
        .buffer_unordered(QUESTIONS_AT_ONCE);
    while let Some((uid, sandbox)) = details.next().await {
        if let (Some(inventory), Some(sandbox)) = (all.get_mut(&uid), sandbox?) {
            inventory.observed.put_sandbox(sandbox);
        }
    }
    drop(details);
    let ours = containers
        .into_iter()
        .filter(|container| container.labels.contains_key(labels::POD_UID));
    let mut details = futures_util::stream::iter(ours.collect::<Vec<_>>())
        .map(|container| async move {
            let found = inspect::container(runtime, &container.id, &container.pod_sandbox_id).await;
            (container, found)
        })
        .buffer_unordered(QUESTIONS_AT_ONCE);
    while let Some((container, instance)) = details.next().await {
        let inventory = all.entry(container.labels[labels::POD_UID].clone()).or_default();
        inventory.pod.metadata = identity(&container.labels);
        add_spec(&mut inventory.pod, &container);
        if let Some(instance) = instance? {
            inventory.observed.put_container(instance);
        }
    }
    Ok(all)
}

async fn list(runtime: &dyn Runtime) -> cri::Result<(Vec<v1::PodSandbox>, Vec<v1::Container>)> {
    let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?;
    let containers = runtime.list_containers(v1::ListContainersRequest::default()).await?;
    Ok((sandboxes.items, containers.containers))
}

fn identity(labels: &std::collections::BTreeMap<String, String>) -> Metadata {
    let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
    Metadata {
        name: label(labels::POD_NAME),
        namespace: label(labels::POD_NAMESPACE),
        uid: label(labels::POD_UID),
        deletion_timestamp: Some(Moment::now()),
        ..Metadata::default()
    }
}

/// The little that is needed to end a container of a pod that the API has forgotten.
fn add_spec(pod: &mut Pod, container: &v1::Container) {
    let grace = container.annotations.get(labels::POD_TERMINATION_GRACE);
    pod.spec.termination_grace_period_seconds = grace.and_then(|seconds| seconds.parse().ok());
    let name = container
        .labels
        .get(labels::CONTAINER_NAME)
        .cloned()
        .unwrap_or_default();
    if pod.container(&name).is_none() {
        pod.spec.containers.push(Container {
            name,
            ..Container::default()
        });
    }
}
