//! Sets of pods with an order or a place, budgets and volumes: every controller acts as its own service account.

use api::Value;
use api::kinds::controller_revision::CONTROLLER_REVISION;
use api::kinds::daemon_set::DAEMON_SET;
use api::kinds::node::NODE;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET;
use api::kinds::stateful_set::STATEFUL_SET;
use client::Patch;
use serde_json::json;

use crate::cluster::Cluster;

fn set(kind: &str, rest: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: {kind}
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: 'web:1'}}]}}
  {rest}
"
    )
}

fn images(pods: &[Value]) -> Vec<&str> {
    let images = pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str());
    images.map(Option::unwrap_or_default).collect()
}

fn new_image() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}})
}

#[tokio::test]
async fn a_stateful_set_comes_up_in_order_and_is_replaced_pod_by_pod() {
    let cluster = Cluster::start().await;
    let budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, \
                  spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}}";
    cluster.create(&POD_DISRUPTION_BUDGET, "default", budget).await;
    let yaml = set("StatefulSet", "serviceName: web\n  replicas: 3");
    cluster.create(&STATEFUL_SET, "default", &yaml).await;
    cluster
        .until("the first pod", async || cluster.list(&POD, "default").await.len() == 1)
        .await;
    let first = cluster.list(&POD, "default").await;
    assert_eq!(first[0]["metadata"]["name"], "web-0");
    cluster
        .until("three pods", async || {
            cluster.run_pods("default").await;
            let set = cluster.get(&STATEFUL_SET, "default", "web").await.unwrap();
            set["status"]["availableReplicas"] == 3
        })
        .await;
    cluster
        .until("a budget of one", async || {
            let budget = cluster.get(&POD_DISRUPTION_BUDGET, "default", "web").await.unwrap();
            budget["status"]["disruptionsAllowed"] == 1 && budget["status"]["expectedPods"] == 3
        })
        .await;

    cluster.patch(&STATEFUL_SET, "default", "web", new_image()).await;
    cluster
        .until("three pods of the second image", async || {
            cluster.run_pods("default").await;
            let set = cluster.get(&STATEFUL_SET, "default", "web").await.unwrap();
            let status = &set["status"];
            status["observedGeneration"] == set["metadata"]["generation"]
                && status["updatedReplicas"] == 3
                && status["currentRevision"] == status["updateRevision"]
        })
        .await;
    assert_eq!(images(&cluster.list(&POD, "default").await), ["web:2"; 3]);
    assert_eq!(cluster.list(&CONTROLLER_REVISION, "default").await.len(), 2);
    cluster.stop().await;
}

#[tokio::test]
async fn a_daemon_set_has_a_pod_on_every_node_and_replaces_it() {
    let cluster = Cluster::start().await;
    cluster
        .create(&DAEMON_SET, "default", &set("DaemonSet", "minReadySeconds: 0"))
        .await;
    cluster
        .create(&NODE, "", "{apiVersion: v1, kind: Node, metadata: {name: node-1}}")
        .await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let nodes = cluster.client.resource(&NODE).subresource("status");
    nodes.patch::<Value>("node-1", Patch::strategic(&ready)).await.unwrap();
    let is_rolled_out = async |image: &str| {
        cluster.run_pods("default").await;
        let set = cluster.get(&DAEMON_SET, "default", "web").await.unwrap();
        let counts = ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"];
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && counts.iter().all(|count| set["status"][count] == 1)
            && images(&cluster.list(&POD, "default").await) == [image]
    };
    cluster
        .until("a pod of the first image", async || is_rolled_out("web:1").await)
        .await;
    cluster.patch(&DAEMON_SET, "default", "web", new_image()).await;
    cluster
        .until("a pod of the second image", async || is_rolled_out("web:2").await)
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_claim_is_bound_to_a_volume_which_is_released_with_it() {
    let cluster = Cluster::start().await;
    let volume = "{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 5Gi}, \
                  accessModes: [ReadWriteOnce], hostPath: {path: /tmp/disk}}}";
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {storageClassName: '', \
                 accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    cluster.create(&PERSISTENT_VOLUME_CLAIM, "default", claim).await;
    cluster.create(&PERSISTENT_VOLUME, "", volume).await;
    let phase = async |name: &str| {
        let volume = cluster.get(&PERSISTENT_VOLUME, "", name).await;
        volume
            .map(|volume| volume["status"]["phase"].clone())
            .unwrap_or_default()
    };
    cluster
        .until("a claim that is bound", async || {
            let claim = cluster.get(&PERSISTENT_VOLUME_CLAIM, "default", "data").await.unwrap();
            claim["status"]["phase"] == "Bound"
                && claim["spec"]["volumeName"] == "disk"
                && phase("disk").await == "Bound"
        })
        .await;
    cluster.delete(&PERSISTENT_VOLUME_CLAIM, "default", "data").await;
    cluster
        .until("a volume that is released", async || {
            let claim = cluster.get(&PERSISTENT_VOLUME_CLAIM, "default", "data").await;
            claim.is_none() && phase("disk").await == "Released"
        })
        .await;
    cluster.delete(&PERSISTENT_VOLUME, "", "disk").await;
    cluster
        .until("no volume", async || {
            cluster.get(&PERSISTENT_VOLUME, "", "disk").await.is_none()
        })
        .await;
    cluster.stop().await;
}
