use api::kinds::config_map::CONFIG_MAP;
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
