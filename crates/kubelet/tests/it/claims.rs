//! Data that outlives its pod.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{TestNode, is_ready};
use crate::scenarios::{Scenario, output_of, scenarios, shell, sleeper};

scenarios! {
    a_claim_is_waited_for_and_its_data_outlives_its_pods,
    an_ephemeral_claim_of_somebody_else_is_refused,
    the_data_of_a_released_volume_is_removed_and_nothing_else,
    data_that_cannot_be_removed_is_told_of_and_tried_again,
}

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// Creates a claim and a volume that are bound to each other.
fn bind(node: &TestNode, claim: &str, volume: &str, source: Value) {
    let created = node.api.create(
        CLAIMS,
        json!({"metadata": {"name": claim}, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}),
    );
    let reference = json!({"namespace": "default", "name": claim, "uid": created["metadata"]["uid"]});
    let mut spec = source;
    spec["claimRef"] = reference;
    node.api.create(
        VOLUMES,
        json!({"metadata": {"name": volume}, "spec": spec, "status": {"phase": "Bound"}}),
    );
}

fn with_claim(mut spec: Value, claim: &str) -> Value {
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec
}

async fn a_claim_is_waited_for_and_its_data_outlives_its_pods(node: Arc<TestNode>) {
    node.create_pod("waits", with_claim(sleeper(), "kept"));
    node.wait_for_event(
        "waits",
        "FailedMount Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process \
         volumes=[data]: error processing PVC default/kept: failed to fetch PVC from API server",
    )
    .await;
    let directory = node.directory("kept");
    bind(&node, "kept", "pv-kept", json!({"local": {"path": directory}}));
    let pod = node.wait_for("waits", "ready", is_ready).await;
    node.exec("waits", &["sh", "-c", "echo%20kept%20%3E%20/data/f"]).await;
    let (_, summary) = node.request("/stats/summary").await;
    assert!(
        summary.contains(r#""pvcRef":{"name":"kept","namespace":"default"}"#),
        "{summary}"
    );
    let (_, metrics) = node.request("/metrics").await;
    let series = r#"kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="kept"}"#;
    assert!(metrics.contains(series), "{metrics}");
    node.delete("waits", 1);
    node.wait_gone("waits").await;
    node.wait_untraced(pod["metadata"]["uid"].as_str().unwrap_or_default())
        .await;
    assert_eq!(
        std::fs::read_to_string(directory.join("f")).ok().as_deref(),
        Some("kept\n")
    );
    let read = output_of(&node, "reads", with_claim(shell("cat /data/f"), "kept")).await;
    assert_eq!(read, "kept\n");
}

async fn an_ephemeral_claim_of_somebody_else_is_refused(node: Arc<TestNode>) {
    let directory = node.directory("foreign");
    bind(&node, "thief-data", "pv-foreign", json!({"local": {"path": directory}}));
    let mut spec = sleeper();
    spec["volumes"] = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    node.create_pod("thief", spec);
    node.wait_for_event(
        "thief",
        "FailedMount Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process \
         volumes=[data]: error processing PVC default/thief-data: PVC default/thief-data was not created for pod \
         default/thief (pod is not owner)",
    )
    .await;
    node.delete("thief", 1);
    node.wait_gone("thief").await;
}

async fn the_data_of_a_released_volume_is_removed_and_nothing_else(node: Arc<TestNode>) {
    let volumes = node.directory("volumes");
    for (name, owner, phase) in [
        ("pv-own", "n1", "Released"),
        ("pv-other", "n2", "Released"),
        ("pv-bound", "n1", "Bound"),
        // Never used: there is no directory.
        ("pv-fresh", "n1", "Released"),
    ] {
        if name != "pv-fresh" {
            std::fs::create_dir_all(volumes.join(name).join("below")).expect("a directory");
        }
        provision(&node, name, owner, phase);
    }
    wait_until_deleted(&node, "pv-own").await;
    wait_until_deleted(&node, "pv-fresh").await;
    assert!(!volumes.join("pv-own").exists());
    assert!(volumes.join("pv-other").exists() && volumes.join("pv-bound").exists());
    assert!(!is_deleted(&node, "pv-other") && !is_deleted(&node, "pv-bound"));
}

async fn data_that_cannot_be_removed_is_told_of_and_tried_again(node: Arc<TestNode>) {
    let data = node.directory("volumes/pv-busy");
    // No sweep removes what is not named as a pod.
    let pod = node.directory("k/pods/not a uid");
    node.directory("k/pods/not a uid/volumes/kubernetes.io~local-volume/pv-busy");
    provision(&node, "pv-busy", "n1", "Released");
    let message = "VolumeFailedDelete a pod on this node still uses the volume";
    node.wait_for_event("pv-busy", message).await;
    assert!(data.exists() && !is_deleted(&node, "pv-busy"));
    std::fs::remove_dir_all(pod).expect("the pod lets go");
    wait_until_deleted(&node, "pv-busy").await;
    assert!(!data.exists());
}

/// A volume of the StorageClass `local` whose data is to be removed once it is released.
fn provision(node: &TestNode, name: &str, owner: &str, phase: &str) {
    let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [owner]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    let path = node.directory("volumes").join(name);
    node.api.create(
        VOLUMES,
        json!({
            "metadata": {
                "name": name, "labels": {"karve.dev/node": owner},
                "annotations": {"karve.dev/provisioned-by": "local", "karve.dev/delete-data": "true"},
            },
            "spec": {
                "local": {"path": path}, "persistentVolumeReclaimPolicy": "Delete", "nodeAffinity": affinity,
            },
            "status": {"phase": phase},
        }),
    );
}

/// Whether the node has said that it removed the data.
fn is_deleted(node: &TestNode, volume: &str) -> bool {
    let volume = node.api.get(&format!("{VOLUMES}/{volume}")).unwrap_or_default();
    volume["metadata"]["annotations"]["karve.dev/data-deleted"] == "true"
}

async fn wait_until_deleted(node: &TestNode, volume: &str) {
    let begun = Instant::now();
    while !is_deleted(node, volume) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the data of {volume} is not removed"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
