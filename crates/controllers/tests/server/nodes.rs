use api::kinds::node::NODE;
use client::Patch;
use serde_json::{Value, json};

use crate::cluster::Cluster;

#[tokio::test]
async fn a_node_gets_its_block_and_loses_its_taint_when_it_is_ready() {
    let cluster = Cluster::start().await;
    cluster
        .create(&NODE, "", "{apiVersion: v1, kind: Node, metadata: {name: one}}")
        .await;
    cluster
        .until("its block", async || {
            let node = cluster.get(&NODE, "", "one").await.unwrap();
            node["spec"]["podCIDRs"] == json!(["10.244.0.0/24"])
        })
        .await;
    let node = cluster.get(&NODE, "", "one").await.unwrap();
    assert_eq!(node["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready");

    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T12:00:00Z"});
    let status = json!({"status": {"conditions": [ready]}});
    let nodes = cluster.client.resource(&NODE).subresource("status");
    nodes.patch::<Value>("one", Patch::strategic(&status)).await.unwrap();
    cluster
        .until("no taint", async || {
            let node = cluster.get(&NODE, "", "one").await.unwrap();
            node["spec"]["taints"].is_null()
        })
        .await;
    cluster.stop().await;
}
