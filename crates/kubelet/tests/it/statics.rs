//! Static pods: from a file to a mirror pod, whatever somebody does to that.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::node::{TestNode, is_ready};
use crate::scenarios::{Scenario, container, scenarios};

scenarios! {
    a_static_pod_follows_its_file_and_not_its_mirror_pod,
}

fn manifest(label: &str) -> String {
    let mut main = container("main", "trap 'exit 0' TERM; while true; do sleep 0.1; done");
    main["env"] = json!([{"name": "LABEL", "value": label}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "static", "labels": {"app": label}},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [main]},
    });
    pod.to_string()
}

fn container_id(pod: &Value) -> String {
    let id = &pod["status"]["containerStatuses"][0]["containerID"];
    id.as_str().unwrap_or_default().to_owned()
}

async fn a_static_pod_follows_its_file_and_not_its_mirror_pod(node: Arc<TestNode>) {
    let directory = node.manifests();
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("static.json");
    // Moved into place, as tools do, so that nobody reads half of it.
    let write = |label: &str| {
        std::fs::write(directory.join(".new"), manifest(label)).expect("a file");
        std::fs::rename(directory.join(".new"), &file).expect("a file");
    };
    write("one");
    let first = node.wait_for("static-n1", "ready", is_ready).await;
    let annotations = &first["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(
        annotations["kubernetes.io/config.mirror"],
        annotations["kubernetes.io/config.hash"]
    );
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Node");
    let uid = annotations["kubernetes.io/config.hash"].as_str().unwrap_or_default();

    // Somebody deletes what shows it: it is shown again, and nothing else happens.
    node.delete("static-n1", 30);
    let again = node
        .wait_for("static-n1", "mirrored again", |pod| {
            is_ready(pod) && pod["metadata"]["uid"] != first["metadata"]["uid"]
        })
        .await;
    assert_eq!(container_id(&again), container_id(&first));

    // Another manifest is another pod, once the first one has ended.
    write("two");
    let other = node
        .wait_for("static-n1", "replaced", |pod| {
            is_ready(pod) && pod["metadata"]["labels"]["app"] == "two"
        })
        .await;
    assert_ne!(container_id(&other), container_id(&first));
    node.wait_untraced(uid).await;

    std::fs::remove_file(&file).expect("a file");
    node.wait_gone("static-n1").await;
    let uid = other["metadata"]["annotations"]["kubernetes.io/config.hash"].as_str();
    node.wait_untraced(uid.unwrap_or_default()).await;
}
