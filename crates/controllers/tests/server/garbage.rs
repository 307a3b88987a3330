use api::Value;
use api::kinds::config_map::CONFIG_MAP;
use api::kinds::deployment::DEPLOYMENT;
use api::kinds::pod::POD;
use api::kinds::replica_set::REPLICA_SET;
use client::{DeleteOptions, Propagation};

use crate::cluster::Cluster;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: 'web:1'}]}}
";

async fn deployed() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create(&DEPLOYMENT, "default", WEB).await;
    cluster
        .until("two running pods", async || {
            cluster.run_pods("default").await;
            let pods = cluster.list(&POD, "default").await;
            pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == 2
        })
        .await;
    cluster
}

async fn delete(cluster: &Cluster, propagation: Propagation) {
    let api = cluster.client.resource(&DEPLOYMENT).in_namespace("default");
    api.delete("web", &DeleteOptions::propagation(propagation))
        .await
        .unwrap();
}

async fn is_all_gone(cluster: &Cluster) -> bool {
    cluster.run_pods("default").await;
    cluster.get(&DEPLOYMENT, "default", "web").await.is_none()
        && cluster.list(&REPLICA_SET, "default").await.is_empty()
        && cluster.list(&POD, "default").await.is_empty()
}

#[tokio::test]
async fn deleting_a_deployment_in_the_background_removes_its_sets_and_pods() {
    let cluster = deployed().await;
    delete(&cluster, Propagation::Background).await;
    assert!(cluster.get(&DEPLOYMENT, "default", "web").await.is_none());
    cluster
        .until("nothing is left", async || is_all_gone(&cluster).await)
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn in_the_foreground_the_deployment_goes_last() {
    let cluster = deployed().await;
    delete(&cluster, Propagation::Foreground).await;
    assert!(cluster.get(&DEPLOYMENT, "default", "web").await.is_some());
    cluster
        .until("the deployment is gone", async || {
            cluster.run_pods("default").await;
            cluster.get(&DEPLOYMENT, "default", "web").await.is_none()
        })
        .await;
    assert!(cluster.list(&REPLICA_SET, "default").await.is_empty());
    assert!(cluster.list(&POD, "default").await.is_empty());
    cluster.stop().await;
}

#[tokio::test]
async fn orphans_stay() {
    let cluster = deployed().await;
    delete(&cluster, Propagation::Orphan).await;
    cluster
        .until("the deployment is gone", async || {
            cluster.get(&DEPLOYMENT, "default", "web").await.is_none()
        })
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let sets = cluster.list(&REPLICA_SET, "default").await;
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0]["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(cluster.list(&POD, "default").await.len(), 2);
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_of_an_owner_that_never_was_goes() {
    let cluster = Cluster::start().await;
    let map = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: orphan
  ownerReferences: [{apiVersion: v1, kind: Pod, name: never, uid: 11111111-2222-3333-4444-555555555555}]
";
    cluster.create(&CONFIG_MAP, "default", map).await;
    cluster
        .until("it is gone", async || {
            cluster.get(&CONFIG_MAP, "default", "orphan").await.is_none()
        })
        .await;
    cluster.stop().await;
}
