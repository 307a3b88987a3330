use api::kinds::config_map::CONFIG_MAP;
use api::kinds::namespace::NAMESPACE;
use api::kinds::pod::POD;
use api::kinds::service_account::SERVICE_ACCOUNT;

use crate::cluster::Cluster;

#[tokio::test]
async fn a_namespace_is_furnished() {
    let cluster = Cluster::start().await;
    cluster
        .create(
            &NAMESPACE,
            "",
            "{apiVersion: v1, kind: Namespace, metadata: {name: team}}",
        )
        .await;
    cluster
        .until("its service account", async || {
            cluster.get(&SERVICE_ACCOUNT, "team", "default").await.is_some()
        })
        .await;
    cluster
        .until("its root certificates", async || {
            cluster.get(&CONFIG_MAP, "team", "kube-root-ca.crt").await.is_some()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_content_along() {
    let cluster = Cluster::start().await;
    cluster
        .create(
            &NAMESPACE,
            "",
            "{apiVersion: v1, kind: Namespace, metadata: {name: team}}",
        )
        .await;
    cluster
        .until("its service account", async || {
            cluster.get(&SERVICE_ACCOUNT, "team", "default").await.is_some()
        })
        .await;
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}";
    cluster.create(&CONFIG_MAP, "team", map).await;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: app}, spec: {containers: [{name: a, image: a}]}}";
    cluster.create(&POD, "team", pod).await;
    cluster.run_pods("team").await;

    cluster.delete(&NAMESPACE, "", "team").await;
    cluster
        .until("the pod is told to stop, and nothing else", async || {
            let pod = cluster.get(&POD, "team", "app").await.unwrap();
            !pod["metadata"]["deletionTimestamp"].is_null()
        })
        .await;
    assert!(cluster.get(&CONFIG_MAP, "team", "settings").await.is_some());
    cluster
        .until("the namespace says what it waits for", async || {
            let namespace = cluster.get(&NAMESPACE, "", "team").await.unwrap();
            namespace["status"]
                .to_string()
                .contains("pods. has 1 resource instances")
        })
        .await;
    cluster
        .until("the namespace is gone", async || {
            cluster.run_pods("team").await;
            cluster.get(&NAMESPACE, "", "team").await.is_none()
        })
        .await;
    assert!(cluster.get(&CONFIG_MAP, "team", "settings").await.is_none());
    cluster.stop().await;
}
