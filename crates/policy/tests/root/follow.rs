//! The whole way: objects in the API server become rules, and no pod starts before they are there.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use network::PodNetwork;
use network::bridge::{self, Bridge, BridgeOptions};
use policy::{Enforcer, PolicedNetwork, PolicyOptions};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fake_api::FakeApi;
use crate::node::{TABLE, is_silent};
use crate::support::{Pod, block_on, on_new_host, run};

struct Node {
    api: FakeApi,
    bridge: Bridge,
    network: PolicedNetwork,
    enforcer: Enforcer,
    _dir: tempfile::TempDir,
}

impl Node {
    fn new() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let bridge = bridge::open(BridgeOptions {
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            ..BridgeOptions::new(dir.path().join("network"))
        });
        let (bridge, enforcer) = (bridge.unwrap(), Enforcer::new());
        let api = FakeApi::default();
        api.put(
            "namespaces",
            json!({"metadata": {"name": "default", "labels": {"team": "red"}}}),
        );
        Node {
            api,
            network: PolicedNetwork::new(Arc::new(bridge.clone()), enforcer.clone()),
            bridge,
            enforcer,
            _dir: dir,
        }
    }

    fn enforce(&self) -> JoinHandle<()> {
        let bridge = self.bridge.clone();
        let options = PolicyOptions {
            client: self.api.client(),
            node_name: "here".to_owned(),
            table: TABLE.to_owned(),
            bridge: "karve0".to_owned(),
            interface_of: Arc::new(move |ip| bridge.interface_of(ip)),
            enforcer: self.enforcer.clone(),
            ready: tokio::sync::watch::Sender::new(false),
        };
        tokio::spawn(async move { policy::run(options).await.unwrap() })
    }

    fn put_pod(&self, name: &str, address: Option<IpAddr>) {
        let ips: Vec<Value> = address.iter().map(|ip| json!({"ip": ip})).collect();
        self.api.put(
            "pods",
            json!({
                "metadata": {"namespace": "default", "name": name, "uid": format!("uid-of-{name}"), "labels": {"app": name}},
                "spec": {"nodeName": "here"},
                "status": {"phase": if ips.is_empty() { "Pending" } else { "Running" }, "podIPs": ips},
            }),
        );
    }

    async fn start(&self, name: &str) -> Pod {
        self.put_pod(name, None);
        let pod = Pod::new(name).connected(&self.network).await;
        pod.serve_tcp(8080);
        pod
    }

    fn put_policy(&self, name: &str, spec: Value) {
        let object = json!({"metadata": {"namespace": "default", "name": name}, "spec": spec});
        self.api.put("networkpolicies", object);
    }
}

fn deny_all() -> Value {
    json!({"podSelector": {}, "policyTypes": ["Ingress"]})
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} never came to be");
}

fn runtime<T>(work: impl Future<Output = T>) -> T {
    block_on(work)
}

#[test]
fn a_new_pod_is_isolated_from_its_first_moment() {
    on_new_host(|| {
        let node = Node::new();
        runtime(async {
            let enforcing = node.enforce();
            let client = node.start("client").await;
            node.put_policy("deny", deny_all());
            for round in 0..20 {
                let pod = node.start(&format!("web{round}")).await;
                // The rules are there when the set-up returns; nothing is waited for here.
                let shown = run("nft", &["list", "map", "ip", TABLE, "ingress-pods"]);
                assert!(shown.contains(&pod.ips[0].to_string()), "{shown}");
            }
            let web = node.start("web").await;
            assert!(is_silent(&client.get(web.ips[0], 8080)));
            node.api.delete("networkpolicies", "deny");
            until("access", || client.get(web.ips[0], 8080).starts_with("web saw")).await;
            enforcing.abort();
        });
    });
}

#[test]
fn a_pod_waits_until_somebody_enforces() {
    on_new_host(|| {
        let node = Node::new();
        node.put_policy("deny", deny_all());
        runtime(async {
            let late = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                assert!(!run("nft", &["list", "tables"]).contains(TABLE));
                Some(node.enforce())
            };
            let (pod, enforcing) = tokio::join!(node.start("web"), late);
            let enforcing = enforcing.unwrap();
            assert!(run("nft", &["list", "map", "ip", TABLE, "ingress-pods"]).contains(&pod.ips[0].to_string()));
            // Whoever enforces may fail and be started again.
            enforcing.abort();
            let _ = enforcing.await;
            let again = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Some(node.enforce())
            };
            let (pod, enforcing) = tokio::join!(node.start("other"), again);
            let enforcing = enforcing.unwrap();
            assert!(run("nft", &["list", "map", "ip", TABLE, "ingress-pods"]).contains(&pod.ips[0].to_string()));
            enforcing.abort();
        });
    });
}

/// The pod is not known here: what labels it has, and so what policies are about it, nobody can say.
#[test]
fn a_pod_that_the_api_does_not_show_is_not_started() {
    on_new_host(|| {
        let node = Node::new();
        runtime(async {
            let enforcing = node.enforce();
            node.start("known").await;
            let unknown = Pod::new("unknown");
            let network = PolicedNetwork::new(Arc::new(node.bridge.clone()), node.enforcer.clone());
            let network = network.with_patience(Duration::from_secs(1));
            let error = network.setup(&unknown.sandbox).await.unwrap_err().to_string();
            assert!(
                error.contains("NetworkPolicies of pod default/unknown were not enforced"),
                "{error}"
            );
            assert_eq!(
                node.bridge.interface_of("10.244.0.3".parse().unwrap()),
                None,
                "its address is free again"
            );
            enforcing.abort();
        });
    });
}

#[test]
fn the_rules_of_a_pod_go_with_it_and_an_address_has_its_new_pods_policies() {
    on_new_host(|| {
        let node = Node::new();
        runtime(async {
            node.put_policy(
                "deny",
                json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}),
            );
            let enforcing = node.enforce();
            let web = node.start("web").await;
            node.put_pod("web", Some(web.ips[0]));
            let shown = || run("nft", &["list", "map", "ip", TABLE, "ingress-pods"]);
            assert!(shown().contains(&web.ips[0].to_string()));
            node.network.teardown(&web.sandbox).await.unwrap();
            node.api.delete("pods", "web");
            until("its absence", || !shown().contains(&web.ips[0].to_string())).await;
            enforcing.abort();
        });
    });
}
