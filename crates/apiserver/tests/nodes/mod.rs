//! What a kubelet may do, and from when on.

use apiserver::LocalNode;
use http::StatusCode;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Its watch is told before the authorizers look by themselves, and a refusal would cost the pod a retry's pause.
#[tokio::test]
async fn a_node_that_hears_of_a_pod_may_at_once_have_what_it_refers_to() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    for name in ["a", "b", "c"] {
        let node = cluster.as_node(name);
        let wanted = format!("{CONFIG_MAPS}/{name}");
        cluster.post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).await;
        assert_eq!(node.get(&wanted).await.0, StatusCode::FORBIDDEN);
        let mut watch = node
            .watch(&format!("{PODS}?watch=1&fieldSelector=spec.nodeName%3D{name}"))
            .await;
        // A task of its own, as the authorizers' are, so that it runs in the order in which they are woken.
        let kubelet = tokio::spawn(async move {
            watch.next().await;
            node.get(&wanted).await
        });
        let container = json!({"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": name}}]});
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": name, "containers": [container]}});
        let (code, answer) = cluster.post(PODS, &pod).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        let (code, answer) = kubelet.await.expect("an answer");
        assert_eq!(code, StatusCode::OK, "{answer}");
    }
}

/// A server beside whose controllers nodes get their blocks, and on whose machine one node runs.
async fn with_blocks() -> Cluster {
    Cluster::start_changed(store::memory::open(), &[], |options| {
        options.facts.allocates_node_cidrs = true;
        options.facts.local_node = Some(LocalNode {
            name: "local".to_owned(),
            kubelet: "203.0.113.1:10250".parse().expect("an address"),
            pod_cidrs: vec!["10.244.0.0/24".to_owned()],
        });
    })
    .await
}

fn node(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Others would send it what is meant for the victim.
#[tokio::test]
async fn a_node_does_not_choose_the_addresses_of_its_pods() {
    let cluster = with_blocks().await;
    let evil = cluster.as_node("evil");
    for spec in [
        json!({"podCIDR": "10.244.1.7/32"}),
        json!({"podCIDRs": ["10.244.1.7/32"]}),
        json!({"podCIDR": "0.0.0.0/1", "podCIDRs": ["0.0.0.0/1"]}),
        json!({"podCIDR": "10.244.0.0/24"}),
    ] {
        let (code, answer) = evil.post(NODES, &node("evil", spec.clone())).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{spec}: {answer}");
        let told = answer["message"].as_str().unwrap_or_default();
        assert!(told.contains("is not allowed to set spec.podCIDRs"), "{told}");
    }
    let (code, answer) = evil.post(NODES, &node("evil", json!({}))).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let path = format!("{NODES}/evil");
    let block = json!({"spec": {"podCIDR": "10.244.1.7/32", "podCIDRs": ["10.244.1.7/32"]}});
    for kind in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let (code, answer) = evil.patch(&path, kind, &block).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{answer}");
    }
    let mut whole = answer.clone();
    whole["spec"] = block["spec"].clone();
    assert_eq!(evil.put(&path, &whole).await.0, StatusCode::FORBIDDEN);
    // The controller may, and what it gave stays through the node's own writes.
    let given = json!({"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}});
    let merge = "application/merge-patch+json";
    assert_eq!(cluster.patch(&path, merge, &given).await.0, StatusCode::OK);
    let labels = json!({"metadata": {"labels": {"example.com/a": "b"}}});
    let (code, answer) = evil.patch(&path, merge, &labels).await;
    assert_eq!(
        (code, &answer["spec"]["podCIDR"]),
        (StatusCode::OK, &json!("10.244.1.0/24"))
    );
}

#[tokio::test]
async fn the_node_beside_the_server_has_the_block_that_it_was_started_with() {
    let cluster = with_blocks().await;
    let block = |block: &str| node("local", json!({"podCIDR": block}));
    let local = cluster.as_node("local");
    assert_eq!(
        local.post(NODES, &block("10.244.1.0/24")).await.0,
        StatusCode::FORBIDDEN
    );
    let (code, answer) = cluster.as_node("other").post(NODES, &block("10.244.0.0/24")).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{answer}");
    let (code, answer) = local.post(NODES, &block("10.244.0.0/24")).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
}
