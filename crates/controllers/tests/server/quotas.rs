use api::kinds::config_map::CONFIG_MAP;
use api::kinds::custom_resource_definition::CUSTOM_RESOURCE_DEFINITION;
use api::kinds::resource_quota::RESOURCE_QUOTA;
use futures_util::future::join_all;
use serde_json::json;

use crate::cluster::Cluster;

const QUOTA: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: few}
spec: {hard: {count/configmaps: '5'}}
";

async fn used(cluster: &Cluster) -> String {
    let quota = cluster.get(&RESOURCE_QUOTA, "default", "few").await.unwrap();
    quota["status"]["used"]["count/configmaps"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn requests_that_come_at_once_never_use_more_than_the_quota() {
    let cluster = Cluster::start().await;
    cluster.create(&RESOURCE_QUOTA, "default", QUOTA).await;
    // One map is there already: that with the root certificate.
    cluster
        .until("the first count", async || used(&cluster).await == "1")
        .await;
    let maps = cluster.client.resource(&CONFIG_MAP).in_namespace("default");
    let create = |number: usize| {
        let maps = maps.clone();
        async move {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number}")}});
            maps.create::<serde_json::Value>(&map).await
        }
    };
    let results = join_all((0..20).map(create)).await;
    let refused: Vec<String> = results
        .iter()
        .filter_map(|result| result.as_ref().err().map(ToString::to_string))
        .collect();
    assert_eq!(refused.len(), 16, "{refused:?}");
    let why =
        "exceeded quota: few, requested: count/configmaps=1, used: count/configmaps=5, limited: count/configmaps=5";
    assert!(refused.iter().all(|message| message.contains(why)), "{refused:?}");
    assert_eq!(cluster.list(&CONFIG_MAP, "default").await.len(), 5);

    let gone = results.iter().position(Result::is_ok).unwrap();
    cluster.delete(&CONFIG_MAP, "default", &format!("map-{gone}")).await;
    cluster
        .until("the count after a deletion", async || used(&cluster).await == "4")
        .await;
    create(99).await.unwrap();
    assert_eq!(used(&cluster).await, "5");
    cluster.stop().await;
}

#[tokio::test]
async fn custom_resources_are_counted_when_they_come_and_when_they_go() {
    let cluster = Cluster::start().await;
    let definition = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";
    cluster.create(&CUSTOM_RESOURCE_DEFINITION, "", definition).await;
    let mut foos = None;
    cluster
        .until("the resource", async || {
            let all = cluster.client.discover().await.unwrap();
            foos = all.into_iter().find(|resource| resource.plural == "foos");
            foos.is_some()
        })
        .await;
    let foos = foos.unwrap();
    let quota =
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: foos}, spec: {hard: {count/foos.example.com: '1'}}}";
    cluster.create(&RESOURCE_QUOTA, "default", quota).await;
    let used = async || {
        let quota = cluster.get(&RESOURCE_QUOTA, "default", "foos").await.unwrap();
        quota["status"]["used"]["count/foos.example.com"].clone()
    };
    cluster.until("the first count", async || used().await == "0").await;
    let foo = "{apiVersion: example.com/v1, kind: Foo, metadata: {name: one}}";
    cluster.create(foos, "default", foo).await;
    assert_eq!(used().await, "1");
    cluster.delete(foos, "default", "one").await;
    cluster
        .until("the count after a deletion", async || used().await == "0")
        .await;
    cluster.stop().await;
}
