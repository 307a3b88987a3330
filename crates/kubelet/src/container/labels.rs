//! The names under which upstream's kubelet, and crictl, find a pod's sandboxes and containers in the runtime.

use std::collections::BTreeMap;

use crate::pod::{Container, Pod};

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub const CONTAINER_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const CONTAINER_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Where the pod came from: the API server or a file on the node.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

pub fn sandbox_labels(pod: &Pod) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone();
    labels.extend(identity(pod));
    labels
}

pub fn sandbox_annotations(pod: &Pod) -> BTreeMap<String, String> {
    let mut annotations = pod.metadata.annotations.clone();
    annotations
        .entry(CONFIG_SOURCE.to_owned())
        .or_insert_with(|| "api".to_owned());
    annotations
}

pub fn container_labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<_, _> = identity(pod).into();
    labels.insert(CONTAINER_NAME.to_owned(), container.name.clone());
    labels
}

pub fn container_annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([
        (CONTAINER_HASH.to_owned(), container.hash()),
        (CONTAINER_RESTART_COUNT.to_owned(), attempt.to_string()),
        (
            CONTAINER_MESSAGE_PATH.to_owned(),
            container.termination_message_path.clone(),
        ),
        (
            CONTAINER_MESSAGE_POLICY.to_owned(),
            format!("{:?}", container.termination_message_policy),
        ),
    ]);
    if let Some(grace) = pod.metadata.deletion_grace_period_seconds {
        annotations.insert(POD_DELETION_GRACE.to_owned(), grace.to_string());
    }
    if let Some(grace) = pod.spec.termination_grace_period_seconds {
        annotations.insert(POD_TERMINATION_GRACE.to_owned(), grace.to_string());
    }
    annotations
}

fn identity(pod: &Pod) -> [(String, String); 3] {
    [
        (POD_NAME.to_owned(), pod.metadata.name.clone()),
        (POD_NAMESPACE.to_owned(), pod.metadata.namespace.clone()),
        (POD_UID.to_owned(), pod.metadata.uid.clone()),
    ]
}
