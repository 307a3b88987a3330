use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::node::NODE;
use api::kinds::service::SERVICE;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const SERVICE_YAML: &str = "{apiVersion: v1, kind: Service, metadata: {name: kube-dns}, spec: {clusterIP: 10.96.0.10, \
    internalTrafficPolicy: Local, ports: [{name: dns, port: 53, protocol: UDP}]}}";

fn node(name: &str, address: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, annotations: {{karve/dns-port: '10053'}}}}, \
         status: {{addresses: [{{type: InternalIP, address: {address}}}]}}}}"
    )
}

fn evil_slice(name: &str) -> String {
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, \
         labels: {{kubernetes.io/service-name: kube-dns}}}}, addressType: IPv4, \
         endpoints: [{{addresses: [203.0.113.66], nodeName: one}}], ports: [{{name: dns, port: 53, protocol: UDP}}]}}"
    )
}

/// Each slice of the Service: its name, its addresses and the node it is for.
async fn slices(cluster: &Cluster) -> Vec<(String, Value, Value)> {
    let mut found: Vec<(String, Value, Value)> = cluster
        .list(&ENDPOINT_SLICE, "kube-system")
        .await
        .iter()
        .map(|slice| {
            let endpoint = &slice["endpoints"][0];
            let name = slice["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            (name, endpoint["addresses"].clone(), endpoint["nodeName"].clone())
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn of_node(name: &str, address: &str) -> (String, Value, Value) {
    (format!("kube-dns-{name}"), json!([address]), json!(name))
}

#[tokio::test]
async fn cluster_dns_is_where_the_nodes_are_and_nowhere_else() {
    let cluster = Cluster::start().await;
    cluster.create(&SERVICE, "kube-system", SERVICE_YAML).await;
    cluster.create(&NODE, "", &node("one", "192.0.2.1")).await;
    cluster.create(&NODE, "", &node("two", "192.0.2.2")).await;
    let both = [of_node("one", "192.0.2.1"), of_node("two", "192.0.2.2")];
    cluster
        .until("a slice for each node", async || slices(&cluster).await == both)
        .await;

    cluster
        .create(&ENDPOINT_SLICE, "kube-system", &evil_slice("evil"))
        .await;
    let endpoints = json!({"endpoints": [{"addresses": ["203.0.113.66"], "nodeName": "one"}]});
    cluster
        .patch(&ENDPOINT_SLICE, "kube-system", "kube-dns-two", endpoints)
        .await;
    cluster.delete(&ENDPOINT_SLICE, "kube-system", "kube-dns-one").await;
    cluster
        .until("the slices are as they were", async || slices(&cluster).await == both)
        .await;

    // What was mended stays as it is: nothing is written over and over.
    let revision = |slice: Value| slice["metadata"]["resourceVersion"].clone();
    let before = revision(
        cluster
            .get(&ENDPOINT_SLICE, "kube-system", "kube-dns-two")
            .await
            .unwrap(),
    );
    cluster.delete(&NODE, "", "one").await;
    cluster
        .until("the slice of the node that is gone goes", async || {
            slices(&cluster).await == [of_node("two", "192.0.2.2")]
        })
        .await;
    let after = revision(
        cluster
            .get(&ENDPOINT_SLICE, "kube-system", "kube-dns-two")
            .await
            .unwrap(),
    );
    assert_eq!(before, after);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_can_neither_write_endpoints_of_cluster_dns_nor_services() {
    let cluster = Cluster::start().await;
    cluster.create(&SERVICE, "kube-system", SERVICE_YAML).await;
    cluster.create(&NODE, "", &node("one", "192.0.2.1")).await;
    cluster
        .until("the node's slice", async || {
            slices(&cluster).await == [of_node("one", "192.0.2.1")]
        })
        .await;
    let evil = cluster.client_of("system:node:evil", &["system:nodes"]);
    let slice: Value = serde_saphyr::from_str(&evil_slice("evil")).unwrap();
    let all = evil.resource(&ENDPOINT_SLICE).in_namespace("kube-system");
    assert!(all.create::<Value>(&slice).await.unwrap_err().is_forbidden());
    let change = json!({"endpoints": []});
    let patched = all.patch::<Value>("kube-dns-one", client::Patch::merge(&change)).await;
    assert!(patched.unwrap_err().is_forbidden());
    let service = json!({
        "metadata": {"name": "evil"}, "spec": {"ports": [{"port": 53}], "externalIPs": ["192.0.2.1"]},
    });
    let services = evil.resource(&SERVICE).in_namespace("kube-system");
    assert!(services.create::<Value>(&service).await.unwrap_err().is_forbidden());
    cluster.stop().await;
}
