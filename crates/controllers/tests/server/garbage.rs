use api::Value;
use api::kinds::config_map::CONFIG_MAP;
use api::kinds::deployment::DEPLOYMENT;
use api::kinds::pod::POD;
use api::kinds::priority_class::PRIORITY_CLASS;
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

/// References that nothing can be found by: they are left alone, and cost no more than one look.
#[tokio::test]
async fn wrong_references_are_not_looked_up_again_and_again() {
    let cluster = Cluster::start().await;
    let uid = |number: usize| format!("11111111-2222-3333-4444-00000000000{number}");
    let of_nobody = [("none.example.com/v1", "Thing"), ("v7", "Thing"), ("apps/v1", "Pod")];
    for (number, (api_version, kind)) in of_nobody.iter().enumerate() {
        let map = format!(
            "
apiVersion: v1
kind: ConfigMap
metadata:
  name: wrong-{number}
  ownerReferences: [{{apiVersion: {api_version}, kind: {kind}, name: none, uid: {}}}]
",
            uid(number)
        );
        cluster.create(&CONFIG_MAP, "default", &map).await;
    }
    let class = format!(
        "
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: outside
  ownerReferences: [{{apiVersion: v1, kind: Pod, name: none, uid: {}}}]
value: 5
",
        uid(8)
    );
    cluster.create(&PRIORITY_CLASS, "", &class).await;
    // Whatever comes later is dealt with, and so these were looked at.
    for number in 0..2 {
        let map = format!(
            "
apiVersion: v1
kind: ConfigMap
metadata:
  name: late
  ownerReferences: [{{apiVersion: v1, kind: Pod, name: never, uid: {number}{}}}]
",
            &uid(9)[1..]
        );
        cluster.create(&CONFIG_MAP, "default", &map).await;
        cluster
            .until("what comes later goes", async || {
                cluster.get(&CONFIG_MAP, "default", "late").await.is_none()
            })
            .await;
    }
    for number in 0..of_nobody.len() {
        let name = format!("wrong-{number}");
        assert!(cluster.get(&CONFIG_MAP, "default", &name).await.is_some(), "{name}");
    }
    assert!(cluster.get(&PRIORITY_CLASS, "", "outside").await.is_some());
    assert_eq!(cluster.retries("garbage_collector_attempt_to_delete"), 0);
    cluster.stop().await;
}

/// An owner outside of namespaces is looked for there, and not where the object is.
#[tokio::test]
async fn an_object_of_a_cluster_scoped_owner_stays_while_the_owner_does() {
    let cluster = Cluster::start().await;
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: owner}, value: 5}";
    let owner = cluster.create(&PRIORITY_CLASS, "", class).await;
    let map = format!(
        "
apiVersion: v1
kind: ConfigMap
metadata:
  name: owned
  ownerReferences: [{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, name: owner, uid: {}}}]
",
        owner["metadata"]["uid"].as_str().unwrap()
    );
    cluster.create(&CONFIG_MAP, "default", &map).await;
    let late = map
        .replace("name: owned", "name: late")
        .replace("name: owner", "name: never");
    let late = late.replace(
        owner["metadata"]["uid"].as_str().unwrap(),
        "11111111-2222-3333-4444-555555555555",
    );
    cluster.create(&CONFIG_MAP, "default", &late).await;
    cluster
        .until("what nobody owns goes", async || {
            cluster.get(&CONFIG_MAP, "default", "late").await.is_none()
        })
        .await;
    assert!(cluster.get(&CONFIG_MAP, "default", "owned").await.is_some());
    cluster.delete(&PRIORITY_CLASS, "", "owner").await;
    cluster
        .until("it goes with its owner", async || {
            cluster.get(&CONFIG_MAP, "default", "owned").await.is_none()
        })
        .await;
    cluster.stop().await;
}
