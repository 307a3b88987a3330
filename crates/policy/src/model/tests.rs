//! What policies mean: each test reads as one rule of NetworkPolicy.

use network::Protocol;
use serde_json::{Value, json};

use super::*;
use crate::objects::{NetworkPolicy, Pod};

/// A cluster with this node's pods web (10.244.0.2) and db (10.244.0.3) in namespace x, and pods of other nodes:
/// client (10.244.1.2) in x, and client (10.244.1.3) in y.
pub fn cluster() -> Model {
    let mut model = Model::default();
    for (name, team) in [("x", "red"), ("y", "blue")] {
        let labels = [("team".to_owned(), team.to_owned())];
        model.set_namespace(name, Some(labels.into()));
    }
    put_pod(&mut model, "x", "web", "here", "10.244.0.2");
    put_pod(&mut model, "x", "db", "here", "10.244.0.3");
    put_pod(&mut model, "x", "client", "there", "10.244.1.2");
    put_pod(&mut model, "y", "client", "there", "10.244.1.3");
    model.step();
    model
}

const WEB: &str = "10.244.0.2";
const DB: &str = "10.244.0.3";
const CLIENT_X: &str = "10.244.1.2";
const CLIENT_Y: &str = "10.244.1.3";
const OUTSIDE: &str = "192.0.2.9";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pod(namespace: &str, name: &str, node: &str, address: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"ports": [
            {"name": "http", "containerPort": 8080},
            {"name": "dns", "containerPort": 5353, "protocol": "UDP"},
        ]}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}

fn put(model: &mut Model, pod: Value, addresses: Option<&[IpAddr]>) {
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let key = Key::new(&pod.metadata.namespace, &pod.metadata.name);
    model.set_pod(&key, Some(PodFacts::new(&pod, "here", addresses)));
}

fn put_pod(model: &mut Model, namespace: &str, name: &str, node: &str, address: &str) {
    put(model, pod(namespace, name, node, address), None);
}

fn put_policy(model: &mut Model, name: &str, spec: Value) {
    let object = json!({"metadata": {"namespace": "x", "name": name}, "spec": spec});
    let policy: NetworkPolicy = serde_json::from_value(object).unwrap();
    model.set_policy(&Key::new("x", name), Some(Policy::new(&policy)));
    model.step();
}

fn tcp(model: &Model, from: &str, to: &str, port: u16) -> bool {
    model.facts().allows(ip(from), ip(to), Protocol::Tcp, port)
}

/// Who reaches pod web of namespace x at TCP port 80, of everybody that there is.
fn reach_web(model: &Model) -> Vec<&'static str> {
    let everybody = [
        ("db", DB),
        ("x/client", CLIENT_X),
        ("y/client", CLIENT_Y),
        ("outside", OUTSIDE),
    ];
    let reaching = everybody.into_iter().filter(|(_, from)| tcp(model, from, WEB, 80));
    reaching.map(|(name, _)| name).collect()
}

fn check_ingress(from: Value, expected: &[&str]) {
    let mut model = cluster();
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": from});
    put_policy(&mut model, "p", spec);
    assert_eq!(reach_web(&model), expected);
    assert!(tcp(&model, WEB, OUTSIDE, 80), "the other direction is not isolated");
    assert!(tcp(&model, OUTSIDE, DB, 80), "the other pod is not selected");
}

#[test]
fn a_pod_is_open_until_a_policy_selects_it() {
    assert_eq!(reach_web(&cluster()), ["db", "x/client", "y/client", "outside"]);
    check_ingress(json!([]), &[]);
    check_ingress(json!([{}]), &["db", "x/client", "y/client", "outside"]);
}

#[test]
fn peers_are_pods_of_the_own_namespace_unless_a_namespace_selector_says_otherwise() {
    let client = json!({"matchLabels": {"app": "client"}});
    check_ingress(json!([{"from": [{"podSelector": {}}]}]), &["db", "x/client"]);
    check_ingress(json!([{"from": [{"podSelector": client}]}]), &["x/client"]);
    check_ingress(
        json!([{"from": [{"namespaceSelector": {}}]}]),
        &["db", "x/client", "y/client"],
    );
    check_ingress(
        json!([{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]),
        &["y/client"],
    );
    check_ingress(
        json!([{"from": [{"namespaceSelector": {"matchLabels": {"team": "red"}}, "podSelector": client}]}]),
        &["x/client"],
    );
    check_ingress(
        json!([{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}, {"podSelector": {"matchLabels": {"app": "db"}}}]}]),
        &["db", "y/client"],
    );
    check_ingress(
        json!([{"from": [{"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db", "web"]}]}}]}]),
        &["x/client"],
    );
    check_ingress(
        json!([{"from": [{"namespaceSelector": {"matchLabels": {"team": "green"}}}]}]),
        &[],
    );
}

#[test]
fn blocks_are_addresses_whoever_has_them() {
    check_ingress(json!([{"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]), &["outside"]);
    check_ingress(
        json!([{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.244.1.0/24"]}}]}]),
        &["db", "outside"],
    );
    check_ingress(
        json!([{"from": [{"ipBlock": {"cidr": "10.244.1.2/31"}}, {"ipBlock": {"cidr": "10.244.0.0/16", "except": ["10.244.1.0/24"]}}]}]),
        &["db", "x/client", "y/client"],
    );
    check_ingress(json!([{"from": [{"ipBlock": {"cidr": "::/0"}}]}]), &[]);
}

#[test]
fn ports_are_numbers_ranges_and_names() {
    let mut model = cluster();
    let spec = |ports: Value| json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": ports}]});
    let allowed = |model: &Model| -> Vec<String> {
        let all = [
            (Protocol::Tcp, 79),
            (Protocol::Tcp, 80),
            (Protocol::Tcp, 81),
            (Protocol::Tcp, 8080),
            (Protocol::Udp, 80),
            (Protocol::Udp, 5353),
            (Protocol::Sctp, 80),
        ];
        let open = all
            .into_iter()
            .filter(|(protocol, port)| model.facts().allows(ip(OUTSIDE), ip(WEB), *protocol, *port));
        open.map(|(protocol, port)| format!("{protocol}/{port}")).collect()
    };
    for (ports, expected) in [
        (json!([{"port": 80}]), vec!["TCP/80"]),
        (json!([{"port": 80, "endPort": 81}]), vec!["TCP/80", "TCP/81"]),
        (json!([{"port": 80, "protocol": "SCTP"}]), vec!["SCTP/80"]),
        (json!([{"port": "http"}]), vec!["TCP/8080"]),
        (json!([{"port": "dns", "protocol": "UDP"}]), vec!["UDP/5353"]),
        (json!([{"protocol": "UDP"}]), vec!["UDP/80", "UDP/5353"]),
        (
            json!([{"port": 79}, {"port": 80, "protocol": "UDP"}]),
            vec!["TCP/79", "UDP/80"],
        ),
        // A name that the pod has for another protocol, or not at all, is no port.
        (json!([{"port": "dns"}]), vec![]),
        (json!([{"port": "nowhere"}]), vec![]),
    ] {
        put_policy(&mut model, "p", spec(ports.clone()));
        assert_eq!(allowed(&model), expected, "{ports}");
    }
}

#[test]
fn named_ports_of_egress_are_the_peers() {
    let mut model = cluster();
    let mut other = pod("y", "server", "there", "10.244.1.9");
    other["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 9090}]);
    put(&mut model, other, None);
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": [
        {"to": [{"namespaceSelector": {}}], "ports": [{"port": "http"}]},
    ]});
    put_policy(&mut model, "p", spec);
    assert!(tcp(&model, WEB, CLIENT_X, 8080) && !tcp(&model, WEB, CLIENT_X, 9090));
    assert!(tcp(&model, WEB, "10.244.1.9", 9090) && !tcp(&model, WEB, "10.244.1.9", 8080));
    assert!(tcp(&model, CLIENT_X, WEB, 1), "ingress is not isolated");
}

#[test]
fn named_ports_of_egress_to_everybody_or_to_a_block_are_those_of_whoever_has_the_address() {
    let mut model = cluster();
    let mut other = pod("y", "server", "there", "10.244.1.9");
    other["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 9090}]);
    put(&mut model, other, None);
    let spec = |to: Value| {
        json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": [
            {"to": to, "ports": [{"port": "http"}]},
        ]})
    };
    put_policy(&mut model, "p", spec(json!([])));
    assert!(tcp(&model, WEB, CLIENT_Y, 8080) && !tcp(&model, WEB, CLIENT_Y, 9090));
    assert!(tcp(&model, WEB, "10.244.1.9", 9090) && !tcp(&model, WEB, "10.244.1.9", 8080));
    assert!(
        !tcp(&model, WEB, OUTSIDE, 8080),
        "nobody knows what the name means there"
    );
    // A pod that comes later counts as those that were there.
    put_pod(&mut model, "y", "late", "there", "10.244.1.10");
    model.step();
    assert!(tcp(&model, WEB, "10.244.1.10", 8080) && !tcp(&model, WEB, "10.244.1.10", 8081));

    put_policy(
        &mut model,
        "p",
        spec(json!([{"ipBlock": {"cidr": "10.244.1.0/24", "except": ["10.244.1.8/29"]}}])),
    );
    assert!(tcp(&model, WEB, CLIENT_Y, 8080) && tcp(&model, WEB, CLIENT_X, 8080));
    assert!(!tcp(&model, WEB, "10.244.1.9", 9090), "it is excepted");
    assert!(!tcp(&model, WEB, DB, 8080), "it is in another block");
}

#[test]
fn policies_add_up_and_both_ends_must_agree() {
    let mut model = cluster();
    let web = json!({"matchLabels": {"app": "web"}});
    let from = |app: &str, port: u16| {
        json!({"podSelector": web, "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": app}}}], "ports": [{"port": port}]},
        ]})
    };
    put_policy(&mut model, "a", from("db", 80));
    put_policy(&mut model, "b", from("db", 81));
    put_policy(&mut model, "c", from("client", 80));
    assert!(tcp(&model, DB, WEB, 80) && tcp(&model, DB, WEB, 81) && tcp(&model, CLIENT_X, WEB, 80));
    assert!(!tcp(&model, CLIENT_X, WEB, 81));
    put_policy(&mut model, "d", json!({"podSelector": {}, "policyTypes": ["Egress"]}));
    assert!(!tcp(&model, DB, WEB, 80), "the client may not send");
    assert!(tcp(&model, CLIENT_X, WEB, 80), "its own node enforces what it may send");
    model.set_policy(&Key::new("x", "d"), None);
    model.set_policy(&Key::new("x", "a"), None);
    model.step();
    assert!(!tcp(&model, DB, WEB, 80) && tcp(&model, DB, WEB, 81));
}

#[test]
fn types_that_are_not_said_follow_from_the_rules() {
    let mut model = cluster();
    put_policy(
        &mut model,
        "p",
        json!({"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}]}),
    );
    assert!(!tcp(&model, OUTSIDE, WEB, 80) && !tcp(&model, WEB, OUTSIDE, 80));
    put_policy(&mut model, "p", json!({"podSelector": {}}));
    assert!(!tcp(&model, OUTSIDE, WEB, 80) && tcp(&model, WEB, OUTSIDE, 80));
}

#[test]
fn labels_that_change_change_what_is_let_through() {
    let mut model = cluster();
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [
        {"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}, "podSelector": {"matchLabels": {"app": "client"}}}]},
    ]});
    put_policy(&mut model, "p", spec);
    assert_eq!(reach_web(&model), ["y/client"]);
    model.set_namespace("x", Some([("team".to_owned(), "blue".to_owned())].into()));
    model.step();
    assert_eq!(reach_web(&model), ["x/client", "y/client"]);
    let mut other = pod("y", "client", "there", CLIENT_Y);
    other["metadata"]["labels"] = json!({});
    put(&mut model, other, None);
    model.step();
    assert_eq!(reach_web(&model), ["x/client"]);
    model.set_namespace("x", None);
    model.step();
    assert_eq!(reach_web(&model), Vec::<&str>::new());
    let mut web = pod("x", "web", "here", WEB);
    web["metadata"]["labels"] = json!({"app": "other"});
    put(&mut model, web, None);
    model.step();
    assert_eq!(reach_web(&model), ["db", "x/client", "y/client", "outside"]);
    assert_eq!(
        *model.facts(),
        Facts::default(),
        "nothing is left of a class without pods"
    );
}

#[test]
fn a_pod_on_the_hosts_network_is_neither_isolated_nor_a_peer() {
    let mut model = cluster();
    for node in ["here", "there"] {
        let mut host = pod("x", &format!("host-{node}"), node, "192.0.2.1");
        host["spec"]["hostNetwork"] = json!(true);
        put(&mut model, host, None);
    }
    put_policy(
        &mut model,
        "p",
        json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": [{"podSelector": {}}]}]}),
    );
    assert!(tcp(&model, OUTSIDE, "192.0.2.1", 80));
    assert!(!tcp(&model, "192.0.2.1", WEB, 80));
}

#[test]
fn a_pod_reaches_itself() {
    let mut model = cluster();
    put_policy(
        &mut model,
        "p",
        json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
    );
    assert!(tcp(&model, WEB, WEB, 80) && !tcp(&model, WEB, DB, 80));
}

#[test]
fn what_has_ended_has_no_address() {
    let mut model = cluster();
    put_policy(
        &mut model,
        "p",
        json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]}),
    );
    let mut ended = pod("x", "client", "there", CLIENT_X);
    ended["status"]["phase"] = json!("Succeeded");
    put(&mut model, ended, None);
    model.step();
    assert_eq!(reach_web(&model), ["db"]);
    // Its address is given to a pod that the policy does not let in.
    put_pod(&mut model, "y", "newer", "there", CLIENT_X);
    model.step();
    assert!(!tcp(&model, CLIENT_X, WEB, 80));
}

/// A node that lies, or is late, about its pods' addresses opens nothing.
#[test]
fn nobody_gains_by_saying_to_have_anothers_address() {
    let mut model = cluster();
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    put_policy(&mut model, "p", spec);
    // A pod that may come in says to have the address of one that may not, and of one outside.
    let mut liar = pod("x", "liar", "evil", CLIENT_Y);
    put(&mut model, liar.clone(), None);
    model.step();
    assert!(!tcp(&model, CLIENT_Y, WEB, 80));
    // A pod that is not isolated says to have the isolated pod's address.
    liar = pod("y", "liar", "here", WEB);
    put(&mut model, liar.clone(), None);
    model.step();
    assert!(!tcp(&model, OUTSIDE, WEB, 80));
    model.set_pod(&Key::new("y", "liar"), None);
    model.step();
    assert!(
        !tcp(&model, OUTSIDE, WEB, 80),
        "what it said counts no more, and the pod is still isolated"
    );
    // What this node gave to a pod is that pod's, whatever others say.
    put(&mut model, pod("x", "db", "here", ""), Some(&[ip(DB)]));
    put(&mut model, pod("y", "liar", "evil", DB), None);
    model.step();
    assert!(tcp(&model, DB, WEB, 80));
}

#[test]
fn an_address_from_the_node_counts_before_the_status_has_it() {
    let mut model = cluster();
    put_policy(&mut model, "p", json!({"podSelector": {}}));
    let mut starting = pod("x", "new", "here", "");
    starting["status"] = json!({"phase": "Pending"});
    put(&mut model, starting.clone(), Some(&[ip("10.244.0.9")]));
    model.step();
    assert!(!tcp(&model, OUTSIDE, "10.244.0.9", 80));
}

#[test]
fn a_published_server_is_a_peer_at_its_ports_only() {
    let mut model = cluster();
    let node = ip("192.0.2.1");
    let published = |protocol, name: &str| PublishedPort {
        protocol,
        name: name.to_owned(),
        known_as: 53,
        port: 10053,
    };
    let dns = PodFacts {
        namespace: "kube-system".to_owned(),
        labels: [("k8s-app".to_owned(), "kube-dns".to_owned())].into(),
        addresses: vec![node],
        published: vec![published(Protocol::Udp, "dns"), published(Protocol::Tcp, "dns-tcp")],
        ..PodFacts::default()
    };
    model.set_pod(&Key::new("kube-system", "kube-dns"), Some(dns));
    let egress = |rules: Value| json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": rules});
    let udp = |model: &Model| model.facts().allows(ip(WEB), node, Protocol::Udp, 10053);
    put_policy(&mut model, "p", egress(json!([])));
    assert!(!udp(&model));
    for rules in [
        json!([{"ports": [{"port": 53, "protocol": "UDP"}]}]),
        json!([{"ports": [{"port": "dns", "protocol": "UDP"}]}]),
        json!([{"to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}]}]),
        json!([{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 53, "protocol": "UDP"}]}]),
    ] {
        put_policy(&mut model, "p", egress(rules.clone()));
        assert!(udp(&model), "{rules}");
        assert!(
            !tcp(&model, WEB, "192.0.2.1", 10250) || !rules.to_string().contains("port"),
            "{rules}"
        );
    }
    put_policy(&mut model, "p", egress(json!([{"to": [{"namespaceSelector": {}}]}])));
    assert!(
        udp(&model) && !tcp(&model, WEB, "192.0.2.1", 10250),
        "not the rest of the machine"
    );
    put_policy(
        &mut model,
        "p",
        egress(json!([{"to": [{"podSelector": {}}], "ports": [{"port": 53, "protocol": "UDP"}]}])),
    );
    assert!(!udp(&model), "only pods of the own namespace");
}
