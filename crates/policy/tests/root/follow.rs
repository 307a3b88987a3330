//! The whole way: objects in the API server become rules, and no pod starts before they are there.

use std::net::{IpAddr, UdpSocket};
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
        Node::with_block("10.244.0.0/24")
    }

    fn with_block(block: &str) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let bridge = bridge::open(BridgeOptions {
            pod_cidrs: vec![block.parse().unwrap()],
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
                error.contains("pod default/unknown is not started because its NetworkPolicies cannot be enforced"),
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

/// Only the first packet of a connection is judged, and one of UDP lives for as long as somebody sends: it must not
/// outlive the pod that it was let through to.
#[test]
fn a_connection_to_the_last_owner_of_an_address_does_not_reach_the_next() {
    on_new_host(|| {
        // Five addresses, so that the sixth pod gets the one that was given back.
        let node = Node::with_block("10.244.0.0/29");
        runtime(async {
            let enforcing = node.enforce();
            let attacker = node.start("attacker").await;
            let accomplice = node.start("accomplice").await;
            accomplice.serve_udp(7000);
            let address = accomplice.ips[0];
            let any = std::net::Ipv4Addr::UNSPECIFIED;
            let open = |pod: &Pod, port: u16| pod.namespace.run(|| UdpSocket::bind((any, port))).unwrap().unwrap();
            let client = open(&attacker, 0);
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            for _ in 0..3 {
                client.send_to(b"?", (address, 7000)).unwrap();
                client.recv_from(&mut [0; 64]).unwrap();
            }
            for name in ["a", "b", "c"] {
                node.start(name).await;
            }
            node.network.teardown(&accomplice.sandbox).await.unwrap();
            node.api.delete("pods", "accomplice");
            node.put_policy("deny", deny_all());
            let victim = node.start("victim").await;
            assert_eq!(victim.ips[0], address, "the address is given again");
            let server = open(&victim, 7000);
            client.send_to(b"attack", (address, 7000)).unwrap();
            // The node is always let in, and by the same way.
            let host = UdpSocket::bind((any, 0)).unwrap();
            host.send_to(b"last", (address, 7000)).unwrap();
            server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut buffer = [0; 64];
            let (length, _) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"last");
            enforcing.abort();
        });
    });
}

/// The host asks who has an address that is nobody's for seconds, and keeps what is to be sent there. That was let through
/// before the address had policies.
#[test]
fn what_was_sent_to_an_address_before_it_was_a_pods_does_not_arrive_later() {
    on_new_host(|| {
        let node = Node::new();
        runtime(async {
            let enforcing = node.enforce();
            let attacker = node.start("attacker").await;
            node.put_policy("deny", deny_all());
            let any = std::net::Ipv4Addr::UNSPECIFIED;
            let open = |pod: &Pod, port: u16| pod.namespace.run(|| UdpSocket::bind((any, port))).unwrap().unwrap();
            let next: IpAddr = "10.244.0.3".parse().unwrap();
            open(&attacker, 0).send_to(b"attack", (next, 7000)).unwrap();
            let victim = node.start("victim").await;
            assert_eq!(victim.ips[0], next);
            let server = open(&victim, 7000);
            let host = UdpSocket::bind((any, 0)).unwrap();
            server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let mut buffer = [0; 64];
            // Datagrams may be lost; whatever arrives first must be the host's.
            let received = (0..60).find_map(|_| {
                host.send_to(b"last", (next, 7000)).unwrap();
                server.recv_from(&mut buffer).ok()
            });
            let (length, _) = received.unwrap();
            assert_eq!(&buffer[..length], b"last");
            node.network.teardown(&victim.sandbox).await.unwrap();
            let known = run("ip", &["neighbour", "show", "dev", "karve0", "nud", "permanent"]);
            assert!(!known.contains("10.244.0.3"), "{known}");
            enforcing.abort();
        });
    });
}

/// As with a node whose token is older than the right to read policies.
#[test]
fn a_pod_whose_policies_cannot_be_read_is_not_started_and_says_why() {
    on_new_host(|| {
        let node = Node::new();
        for resource in ["networkpolicies", "pods", "namespaces", "endpointslices"] {
            node.api.forbid(resource, true);
            runtime(async {
                let enforcing = node.enforce();
                let name = format!("needs-{resource}");
                node.put_pod(&name, None);
                let error = node
                    .network
                    .setup(&Pod::new(&name).sandbox)
                    .await
                    .unwrap_err()
                    .to_string();
                let reason = format!("cannot list resource \"{resource}\"");
                assert!(error.contains(&format!("pod default/{name} is not started")), "{error}");
                assert!(error.contains(&reason), "{error}");
                // Nobody has to do anything on the node when the right is there.
                node.api.forbid(resource, false);
                // The kubelet tries again, too: a busy machine may take longer than a pod waits.
                let pod = Pod::new(&name);
                let mut tries = 0;
                while let Err(error) = node.network.setup(&pod.sandbox).await {
                    tries += 1;
                    assert!(tries < 10, "{error}");
                }
                enforcing.abort();
            });
        }
    });
}

/// The right may also be taken away later: the caches still have what they had, but a pod that starts asks for the newest.
#[test]
fn a_pod_is_not_started_by_policies_that_may_be_old() {
    on_new_host(|| {
        let node = Node::new();
        runtime(async {
            let enforcing = node.enforce();
            node.start("first").await;
            node.api.forbid("networkpolicies", true);
            node.put_pod("web", None);
            let error = node
                .network
                .setup(&Pod::new("web").sandbox)
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains("cannot list resource \"networkpolicies\""), "{error}");
            node.api.forbid("networkpolicies", false);
            node.start("web").await;
            enforcing.abort();
        });
    });
}

#[test]
fn rules_that_others_flush_are_restored() {
    on_new_host(|| {
        let node = Node::new();
        runtime(async {
            let enforcing = node.enforce();
            node.put_policy("deny", deny_all());
            let web = node.start("web").await;
            let client = node.start("client").await;
            assert!(is_silent(&client.get(web.ips[0], 8080)));
            let list = || run("nft", &["list", "map", "ip", TABLE, "ingress-pods"]);
            let before = list();
            for flush in [
                &["flush", "ruleset"][..],
                &["delete", "table", "bridge", TABLE],
                &["flush", "map", "ip", TABLE, "ingress-pods"],
                &["flush", "chain", "ip", TABLE, "forward"],
            ] {
                let rules = run("nft", &["list", "ruleset"]);
                run("nft", flush);
                let restored =
                    || run("nft", &["list", "ruleset"]).contains(&format!("table bridge {TABLE}")) && list() == before;
                until("the rules", restored).await;
                until("the policy", || is_silent(&client.get(web.ips[0], 8080))).await;
                assert_eq!(
                    lines_of(TABLE, &run("nft", &["list", "ruleset"])),
                    lines_of(TABLE, &rules)
                );
            }
            assert!(!enforcing.is_finished());
            enforcing.abort();
        });
    });
}

/// The rules of the tables of that name.
fn lines_of(table: &str, rules: &str) -> Vec<String> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in rules.lines() {
        if line.starts_with("table ") {
            inside = line.ends_with(&format!(" {table} {{"));
        }
        if inside {
            lines.push(line.to_owned());
        }
    }
    lines.sort();
    lines
}
