//! A node whose policies are enforced by the model and the kernel, without an API server.

use std::net::IpAddr;
use std::sync::Arc;

use client::Key;
use network::bridge::{self, Bridge, BridgeOptions};
use policy::model::{Model, PodFacts, Policy};
use policy::nftables::{Nftables, NftablesOptions};
use policy::objects;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Pod, block_on};

pub const TABLE: &str = "karve-policy";

pub struct Node {
    pub network: Bridge,
    pub model: Model,
    pub rules: Nftables,
    _dir: TempDir,
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn open_rules(network: &Bridge) -> Nftables {
    let bridge = network.clone();
    let options = NftablesOptions {
        table: TABLE.to_owned(),
        bridge: "karve0".to_owned(),
        interface_of: Arc::new(move |ip| bridge.interface_of(ip)),
    };
    Nftables::open(&options).unwrap()
}

pub fn policy(namespace: &str, name: &str, spec: Value) -> objects::NetworkPolicy {
    let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

pub fn pod_object(namespace: &str, name: &str, node: &str, labels: Value, ips: &[IpAddr]) -> objects::Pod {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let object = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{name}"), "labels": labels},
        "spec": {"nodeName": node, "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIPs": ips},
    });
    serde_json::from_value(object).unwrap()
}

impl Node {
    pub fn new() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(BridgeOptions {
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap(), "fd00:244::/64".parse().unwrap()],
            cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap(), "fd00:244::/56".parse().unwrap()],
            ..BridgeOptions::new(dir.path().join("network"))
        });
        let network = network.unwrap();
        let mut node = Node {
            rules: open_rules(&network),
            network,
            model: Model::default(),
            _dir: dir,
        };
        node.rules.resync(node.model.facts()).unwrap();
        node
    }

    /// A pod of this node, with its name as label `app`.
    pub fn pod(&mut self, name: &str) -> Pod {
        let pod = block_on(Pod::new(name).connected(&self.network));
        pod.serve_tcp(8080);
        pod.serve_tcp(8081);
        pod.serve_udp(5353);
        self.label(&pod, json!({"app": name}));
        pod
    }

    pub fn label(&mut self, pod: &Pod, labels: Value) {
        let name = &pod.sandbox.name;
        let object = pod_object("default", name, "here", labels, &pod.ips);
        let facts = PodFacts::new(&object, "here", Some(&pod.ips));
        self.model.set_pod(&Key::new("default", name), Some(facts));
        self.apply();
    }

    pub fn put_policy(&mut self, name: &str, spec: Value) {
        let policy = Policy::new(&policy("default", name, spec));
        self.model.set_policy(&Key::new("default", name), Some(policy));
        self.apply();
    }

    pub fn delete_policy(&mut self, name: &str) {
        self.model.set_policy(&Key::new("default", name), None);
        self.apply();
    }

    pub fn apply(&mut self) {
        let step = self.model.step();
        self.rules.apply(&step).unwrap();
    }
}

/// That nothing answers, because packets are dropped and not because somebody refuses.
pub fn is_silent(answer: &str) -> bool {
    ["timed out", "operation would block", "resource temporarily unavailable"]
        .iter()
        .any(|silence| answer.contains(silence))
}
