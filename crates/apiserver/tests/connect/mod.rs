//! Where requests are passed on to, when nodes, pods and slices say where, and what comes back from there.

mod addresses;
mod answers;
mod identity;
mod kubelet;
mod resource_metrics;

use apiserver::LocalNode;
use http::StatusCode;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use kubelet::{Answer, Authority, Kubelet};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello";

/// A server that verifies kubelets, and whose own node's kubelet is at an address. Only for that node loopback is allowed.
async fn cluster(authority: &Authority, local: &str, kubelet: &Kubelet) -> Cluster {
    let cluster = Cluster::start_changed(store::memory::open(), &["ServiceAccount"], |options| {
        options.kubelets = authority.kubelet_tls().dialer().expect("a configuration");
        options.insecure_tls = kubelet::unchecked_tls();
        options.facts.local_node = Some(LocalNode {
            name: local.to_owned(),
            kubelet: kubelet.address,
            pod_cidrs: Vec::new(),
        });
    });
    let cluster = cluster.await;
    let host = kubelet.address.ip().to_string();
    add_node(&cluster, local, &host, kubelet.address.port()).await;
    cluster
}

async fn add_node(cluster: &Cluster, name: &str, address: &str, port: u16) {
    let kind = match address.parse::<std::net::IpAddr>() {
        Ok(_) => "InternalIP",
        Err(_) => "Hostname",
    };
    let node = json!({
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": kind, "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    });
    let (code, answer) = cluster.post(NODES, &node).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
}

/// A pod that runs on a node and is said to have an address.
async fn add_pod(cluster: &Cluster, name: &str, node: &str, address: &str, spec: Value) {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    });
    if let (Some(known), Some(more)) = (pod["spec"].as_object_mut(), spec.as_object()) {
        known.extend(more.clone());
    }
    let (code, answer) = cluster.post(PODS, &pod).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    let (code, answer) = cluster
        .patch(
            &format!("{PODS}/{name}/status"),
            "application/merge-patch+json",
            &status,
        )
        .await;
    assert_eq!(code, StatusCode::OK, "{answer}");
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn the_kubelet_of_a_node_is_asked() {
    let authority = Authority::new();
    let kubelet = Kubelet::serve(authority.serving("one"), &authority, Answer::new(HELLO)).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    add_pod(&cluster, "web", "one", "203.0.113.7", json!({})).await;
    for path in [
        format!("{NODES}/one/proxy/metrics"),
        format!("{NODES}/one:{}/proxy/metrics", kubelet.address.port()),
        format!("{PODS}/web/log"),
    ] {
        let (code, answer) = cluster.get(&path).await;
        assert_eq!((code, answer), (StatusCode::OK, json!("hello")), "{path}");
    }
    let clients = kubelet.clients.lock();
    let user = auth::authenticate::x509::user(&clients[0]).expect("a name").user;
    assert_eq!(user.name, apiserver::KUBELET_CLIENT);
    assert_eq!(user.groups, ["system:authenticated"], "and no group that gives rights");
}
