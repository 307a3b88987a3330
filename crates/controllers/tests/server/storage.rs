//! Claims of the built-in StorageClass and of ephemeral volumes; the tests play scheduler and kubelet.

use std::sync::Arc;

use api::kinds::node::NODE;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::storage_class::STORAGE_CLASS;
use api::local_volumes::{DATA_DELETED, DELETE_DATA, node_of_provisioned_volume};
use api::{Fields, Value};
use client::Patch;
use controllers::create_default_class;
use scheduler::SchedulerOptions;
use serde_json::json;

use crate::cluster::Cluster;

const NODE_YAML: &str = "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}}";
const CLAIM: &str = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, \
                     spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";

async fn select_node(cluster: &Cluster, claim: &str) {
    let choice = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    cluster.patch(&PERSISTENT_VOLUME_CLAIM, "default", claim, choice).await;
}

async fn phase(cluster: &Cluster, claim: &str) -> String {
    let claim = cluster.get(&PERSISTENT_VOLUME_CLAIM, "default", claim).await;
    claim.map_or_else(String::new, |claim| claim["status"].text("phase").to_owned())
}

#[tokio::test]
async fn a_claim_of_the_default_class_gets_a_volume_whose_data_goes_before_it() {
    let cluster = Cluster::start().await;
    let admin = cluster.client_of("admin", &["system:masters"]);
    create_default_class(&admin).await.unwrap();
    cluster.create(&NODE, "", NODE_YAML).await;
    cluster.create(&PERSISTENT_VOLUME_CLAIM, "default", CLAIM).await;
    select_node(&cluster, "data").await;
    cluster
        .until("the claim is bound", async || phase(&cluster, "data").await == "Bound")
        .await;
    let volume = cluster.list(&PERSISTENT_VOLUME, "").await.remove(0);
    assert_eq!(node_of_provisioned_volume(&volume), Some("n1"));
    let name = volume["metadata"].text("name").to_owned();

    cluster.delete(&PERSISTENT_VOLUME_CLAIM, "default", "data").await;
    cluster
        .until("the node is asked to remove the data", async || {
            let volume = cluster.get(&PERSISTENT_VOLUME, "", &name).await.unwrap();
            volume["metadata"]["annotations"].text(DELETE_DATA) == "true"
        })
        .await;
    // Even a deletion by hand does not let the object go before its data.
    cluster.delete(&PERSISTENT_VOLUME, "", &name).await;
    let kept = cluster.get(&PERSISTENT_VOLUME, "", &name).await.unwrap();
    assert!(kept["metadata"].has("deletionTimestamp"));
    let done = json!({"metadata": {"annotations": {DATA_DELETED: "true"}}});
    cluster.patch(&PERSISTENT_VOLUME, "", &name, done).await;
    cluster
        .until("the volume is gone", async || {
            cluster.get(&PERSISTENT_VOLUME, "", &name).await.is_none()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_default_class_that_was_deleted_or_changed_stays_so() {
    let cluster = Cluster::start().await;
    let admin = cluster.client_of("admin", &["system:masters"]);
    create_default_class(&admin).await.unwrap();
    let retain = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "false"}}});
    cluster.patch(&STORAGE_CLASS, "", "local", retain).await;
    create_default_class(&admin).await.unwrap();
    let class = cluster.get(&STORAGE_CLASS, "", "local").await.unwrap();
    assert_eq!(
        class["metadata"]["annotations"].text("storageclass.kubernetes.io/is-default-class"),
        "false"
    );
    cluster.delete(&STORAGE_CLASS, "", "local").await;
    create_default_class(&admin).await.unwrap();
    assert!(cluster.get(&STORAGE_CLASS, "", "local").await.is_none());
    cluster.stop().await;
}

#[tokio::test]
async fn an_ephemeral_volume_has_a_claim_that_goes_with_its_pod() {
    let cluster = Cluster::start().await;
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: 'web:1'}]
  volumes:
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    cluster.create(&POD, "default", pod).await;
    cluster
        .until("the claim is made", async || {
            phase(&cluster, "p-scratch").await == "Pending"
        })
        .await;
    cluster.delete(&POD, "default", "p").await;
    cluster
        .until("the claim is gone", async || {
            cluster.list(&PERSISTENT_VOLUME_CLAIM, "default").await.is_empty()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_scheduler_and_the_provisioner_bring_a_pod_and_its_volume_to_one_node() {
    let cluster = Cluster::start().await;
    let admin = cluster.client_of("admin", &["system:masters"]);
    create_default_class(&admin).await.unwrap();
    let scheduler = tokio::spawn(scheduler::run(SchedulerOptions {
        client: cluster.client_of("system:kube-scheduler", &[]),
        profiles: vec![scheduler::Profile::default()],
        host: "test".to_owned(),
        metrics: Arc::default(),
    }));
    cluster.create(&NODE, "", NODE_YAML).await;
    let status = json!({"status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"}}});
    let nodes = admin.resource(&NODE).subresource("status");
    nodes.patch::<Value>("n1", Patch::merge(&status)).await.unwrap();
    cluster.create(&PERSISTENT_VOLUME_CLAIM, "default", CLAIM).await;
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: 'web:1'}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
";
    cluster.create(&POD, "default", pod).await;
    cluster
        .until("the pod is on the node of its volume", async || {
            let pod = cluster.get(&POD, "default", "p").await.unwrap();
            pod["spec"].text("nodeName") == "n1" && phase(&cluster, "data").await == "Bound"
        })
        .await;
    scheduler.abort();
    let _ = scheduler.await;
    cluster.stop().await;
}
