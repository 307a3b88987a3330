//! Addresses that must not be connected to, whoever names them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::LocalNode;
use http::StatusCode;
use serde_json::json;
use tokio::net::TcpListener;

use super::kubelet::{Answer, Authority, Kubelet};
use super::{HELLO, NODES, PODS, add_node, add_pod, cluster, message};
use crate::cluster::Cluster;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Where only the server's own machine gets to, however it is written.
const NOT_ALLOWED: &[&str] = &[
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "169.254.169.254",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "ff02::1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
];

/// Those that are refused as Pods' and EndpointSlices' addresses already, but not as Nodes'.
const ALSO_NOT_ALLOWED: &[&str] = &[
    "::ffff:127.0.0.1",
    "::ffff:0.0.0.0",
    "::ffff:10.96.0.1",
    "localhost",
    "127.1",
];

/// Counts who connects.
async fn listen() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let connections: Arc<AtomicUsize> = Arc::default();
    let counted = connections.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, connections)
}

async fn server() -> Cluster {
    Cluster::start_without(&["ServiceAccount"]).await
}

#[tokio::test]
async fn a_node_does_not_lead_the_server_to_its_own_machine() {
    let (address, connections) = listen().await;
    let cluster = server().await;
    let services = ["10.96.0.1", "10.96.0.200"];
    let all = NOT_ALLOWED.iter().chain(ALSO_NOT_ALLOWED).chain(&services);
    for (number, host) in all.enumerate() {
        let node = format!("node-{number}");
        add_node(&cluster, &node, host, address.port()).await;
        add_pod(&cluster, &node, &node, "203.0.113.7", json!({})).await;
        let (code, answer) = cluster.get(&format!("{NODES}/{node}/proxy/api/v1/secrets")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{host}: {answer}");
        assert!(message(&answer).starts_with("address not allowed"), "{host}: {answer}");
        let other_port = format!("{NODES}/http:{node}:{}/proxy/", address.port() ^ 1);
        assert_eq!(cluster.get(&other_port).await.0, StatusCode::BAD_REQUEST, "{host}");
        for subresource in ["log", "exec?command=a", "attach", "portforward?ports=1"] {
            let path = format!("{PODS}/{node}/{subresource}");
            let method = if subresource == "log" { "GET" } else { "POST" };
            let answer = cluster.send(method, &path, None).await;
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{host} {subresource}");
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

/// In upstream's words where upstream refuses, and with the reason where only we do.
#[tokio::test]
async fn a_refused_address_is_told() {
    let cluster = server().await;
    add_node(&cluster, "loopback", "127.0.0.1", 6443).await;
    add_node(&cluster, "service", "10.96.0.1", 443).await;
    add_pod(&cluster, "web", "loopback", "127.0.0.1", json!({})).await;
    let told = async |path: String| message(&cluster.get(&path).await.1).to_owned();
    assert_eq!(told(format!("{NODES}/loopback/proxy/")).await, "address not allowed");
    assert_eq!(told(format!("{PODS}/web:80/proxy/")).await, "address not allowed");
    assert_eq!(
        told(format!("{PODS}/web/log")).await,
        "address not allowed: 127.0.0.1 is a loopback address"
    );
    assert_eq!(
        told(format!("{NODES}/service/proxy/")).await,
        "address not allowed: 10.96.0.1 belongs to Services"
    );
}

#[tokio::test]
async fn a_pod_does_not_lead_the_server_to_its_own_machine() {
    let (address, connections) = listen().await;
    let cluster = server().await;
    add_node(&cluster, "one", "203.0.113.1", 10250).await;
    for (number, host) in NOT_ALLOWED.iter().chain(&["10.96.0.1"]).enumerate() {
        let pod = format!("pod-{number}");
        for (suffix, on_host) in [("", false), ("-host", true)] {
            let name = format!("{pod}{suffix}");
            add_pod(&cluster, &name, "one", host, json!({"hostNetwork": on_host})).await;
            for scheme in ["http", "https"] {
                let path = format!("{PODS}/{scheme}:{name}:{}/proxy/", address.port());
                let (code, answer) = cluster.get(&path).await;
                assert_eq!(code, StatusCode::BAD_REQUEST, "{host}: {answer}");
                assert!(message(&answer).starts_with("address not allowed"), "{host}: {answer}");
            }
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

/// The server's own address is in its facts here; it need not be an address of this machine.
#[tokio::test]
async fn nobody_leads_the_server_to_an_api_server() {
    let cluster = Cluster::start_changed(store::memory::open(), &["ServiceAccount"], |options| {
        options.facts.advertise = "203.0.113.1".parse().expect("an address");
    });
    let cluster = cluster.await;
    for (name, host) in [("own", "203.0.113.1"), ("mapped", "::ffff:203.0.113.1")] {
        add_node(&cluster, name, host, 6443).await;
        let (code, answer) = cluster.get(&format!("{NODES}/{name}/proxy/api/v1/secrets")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(
            message(&answer),
            "address not allowed: an API server listens at 203.0.113.1:6443"
        );
    }
    add_pod(&cluster, "web", "own", "203.0.113.1", json!({"hostNetwork": true})).await;
    let (code, answer) = cluster.get(&format!("{PODS}/https:web:6443/proxy/api")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
}

/// Slices are written by users; upstream, too, goes only where a pod says to be.
#[tokio::test]
async fn a_service_leads_only_to_addresses_of_its_pods() {
    let (address, connections) = listen().await;
    let cluster = server().await;
    add_node(&cluster, "one", "203.0.113.1", 10250).await;
    add_pod(&cluster, "loopback", "one", "127.0.0.1", json!({})).await;
    add_pod(&cluster, "elsewhere", "one", "203.0.113.7", json!({})).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let (code, answer) = cluster.post(SERVICES, &service).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let target = |name: &str, namespace: &str| json!({"kind": "Pod", "name": name, "namespace": namespace});
    for (kind, host, target) in [
        ("FQDN", "127.0.0.1", target("loopback", "default")),
        ("FQDN", "localhost.localdomain", target("loopback", "default")),
        ("IPv4", "203.0.113.8", target("elsewhere", "default")),
        ("IPv4", "203.0.113.7", target("elsewhere", "kube-system")),
        ("IPv4", "203.0.113.7", target("nobody", "default")),
        ("IPv4", "203.0.113.7", serde_json::Value::Null),
    ] {
        let slice = json!({
            "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": kind, "ports": [{"name": "", "port": address.port()}],
            "endpoints": [{"addresses": [host], "targetRef": target}],
        });
        let (code, answer) = cluster.post(SLICES, &slice).await;
        assert_eq!(code, StatusCode::CREATED, "{host}: {answer}");
        let (code, answer) = cluster.get(&format!("{SERVICES}/web/proxy/")).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{host}: {answer}");
        assert_eq!(message(&answer), "no endpoints available for service \"web\"");
        cluster.delete(&format!("{SLICES}/web")).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

/// An address of this machine that others could have, too; none where it has only loopback.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent by this; the kernel only says which address it would take.
    socket.connect("203.0.113.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

/// Pods on the host's network are reached at the server's own machine if their node is there and can show it.
#[tokio::test]
async fn pods_on_the_servers_machine_are_reached_when_their_node_is_there() {
    let Some(own) = own_address() else {
        println!("SKIPPED: this machine has no address but loopback");
        return;
    };
    let authority = Authority::new();
    let host = own.to_string();
    let kubelet = Kubelet::serve_at(&host, authority.serving("one"), &authority, Answer::new(HELLO)).await;
    let web = Kubelet::serve_at(&host, authority.serving("web"), &authority, Answer::new(HELLO)).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    // This one is elsewhere, and says that it is here.
    add_node(&cluster, "liar", &host, kubelet.address.port()).await;
    add_pod(&cluster, "host", "one", &host, json!({"hostNetwork": true})).await;
    add_pod(&cluster, "bridge", "one", &host, json!({})).await;
    add_pod(&cluster, "lie", "liar", &host, json!({"hostNetwork": true})).await;
    let port = web.address.port();
    let ask = async |pod: &str| cluster.get(&format!("{PODS}/https:{pod}:{port}/proxy/")).await;
    assert_eq!(ask("host").await, (StatusCode::OK, json!("hello")));
    let (code, answer) = ask("bridge").await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
    let (code, answer) = ask("lie").await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    assert!(
        message(&answer).contains("is not the kubelet of node \"liar\""),
        "{answer}"
    );
    // The same holds for other servers on a node's machine.
    let ask = async |node: &str| cluster.get(&format!("{NODES}/https:{node}:{port}/proxy/")).await;
    assert_eq!(ask("one").await, (StatusCode::OK, json!("hello")));
    assert_eq!(ask("liar").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(web.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn loopback_is_for_the_kubelet_of_this_process_alone() {
    let authority = Authority::new();
    let kubelet = Kubelet::serve(authority.serving("one"), &authority, Answer::new(HELLO)).await;
    let cluster = Cluster::start_changed(store::memory::open(), &[], |options| {
        options.kubelets = authority.kubelet_tls().dialer().expect("a configuration");
        options.facts.local_node = Some(LocalNode {
            name: "one".to_owned(),
            kubelet: kubelet.address,
            pod_cidrs: Vec::new(),
        });
    });
    let cluster = cluster.await;
    let port = kubelet.address.port();
    add_node(&cluster, "one", "127.0.0.1", port).await;
    add_node(&cluster, "two", "127.0.0.1", port).await;
    assert_eq!(
        cluster.get(&format!("{NODES}/one/proxy/x")).await.0,
        StatusCode::OK,
        "its own"
    );
    for path in ["two/proxy/x".to_owned(), format!("one:{}/proxy/x", port ^ 1)] {
        let (code, answer) = cluster.get(&format!("{NODES}/{path}")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{path}: {answer}");
    }
    // A node that moves its kubelet to another port of loopback is not the one that runs here.
    let status = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port ^ 1}}}});
    let merge = "application/merge-patch+json";
    cluster.patch(&format!("{NODES}/one/status"), merge, &status).await;
    let (code, answer) = cluster.get(&format!("{NODES}/one/proxy/x")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
}
