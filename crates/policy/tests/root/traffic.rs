//! Who reaches whom.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use proxy::Applied;
use serde_json::json;

use crate::node::{Node, ip, is_silent};
use crate::support::{ask_udp, filter_bridges, get, neighbour, on_new_host, run};

#[test]
fn ingress_is_let_in_by_label_and_port() {
    for filter in [false, true] {
        on_new_host(|| {
            filter_bridges(filter);
            let mut node = Node::new();
            let [web, friend, stranger] = ["web", "friend", "stranger"].map(|name| node.pod(name));
            assert!(stranger.get(web.ips[0], 8080).starts_with("web saw"));
            node.put_policy(
                "p",
                json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [
                    {"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}], "ports": [{"port": "http"}]},
                ]}),
            );
            for address in 0..2 {
                let web = web.ips[address];
                assert!(friend.get(web, 8080).starts_with("web saw"), "filter {filter}");
                assert!(is_silent(&friend.get(web, 8081)), "another port");
                assert!(is_silent(&stranger.get(web, 8080)), "another pod, filter {filter}");
            }
            assert!(is_silent(&friend.ask_udp(web.ips[0], 5353)), "another protocol");
            // The node itself always gets through, or probes would fail.
            assert!(get(web.ips[0], 8081).starts_with("web saw"));
            assert!(ask_udp(web.ips[0], 5353).starts_with("web saw"));
            // Nothing is said about what the pod sends, and answers come back.
            assert!(web.get(stranger.ips[0], 8080).starts_with("stranger saw"));
            node.label(&stranger, json!({"app": "friend"}));
            assert!(stranger.get(web.ips[0], 8080).starts_with("web saw"));
            node.delete_policy("p");
            assert!(friend.get(web.ips[0], 8081).starts_with("web saw"));
        });
    }
}

#[test]
fn egress_is_let_out_by_label_block_and_port() {
    on_new_host(|| {
        let mut node = Node::new();
        let outside = neighbour("outside");
        outside.run("ip", &["route", "add", "default", "via", "192.0.2.1"]);
        outside.serve_tcp(8080);
        outside.serve_tcp(8081);
        let host = crate::support::Pod {
            namespace: network::netlink::Namespace::open(std::path::Path::new("/proc/thread-self/ns/net")).unwrap(),
            ..crate::support::Pod::new("host")
        };
        host.serve_tcp(9000);
        let [client, db, other] = ["client", "db", "other"].map(|name| node.pod(name));
        let gateway = ip("10.244.0.1");
        assert!(client.get(gateway, 9000).starts_with("host saw"));
        node.put_policy(
            "p",
            json!({"podSelector": {"matchLabels": {"app": "client"}}, "policyTypes": ["Egress"], "egress": [
                {"to": [{"podSelector": {"matchLabels": {"app": "db"}}}]},
                {"to": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.8/29"]}}], "ports": [{"port": 8080}]},
            ]}),
        );
        assert!(client.get(db.ips[0], 8080).starts_with("db saw"));
        assert!(client.get(db.ips[1], 8081).starts_with("db saw"), "also by IPv6");
        assert!(client.ask_udp(db.ips[0], 5353).starts_with("db saw"));
        assert!(is_silent(&client.get(other.ips[0], 8080)));
        assert!(is_silent(&client.get(other.ips[1], 8080)));
        assert!(is_silent(&client.get(gateway, 9000)), "the node's own servers");
        assert!(client.get(ip("192.0.2.2"), 8080).starts_with("outside saw"));
        assert!(is_silent(&client.get(ip("192.0.2.2"), 8081)));
        assert!(
            db.get(client.ips[0], 8080).starts_with("client saw"),
            "the other direction"
        );
        node.put_policy(
            "q",
            json!({"podSelector": {"matchLabels": {"app": "client"}}, "policyTypes": ["Egress"], "egress": [
                {"to": [{"ipBlock": {"cidr": "10.244.0.1/32"}}], "ports": [{"port": 9000, "endPort": 9001}]},
            ]}),
        );
        assert!(client.get(gateway, 9000).starts_with("host saw"), "policies add up");
    });
}

#[test]
fn policies_judge_the_pod_behind_a_service_and_the_client_before_masquerading() {
    for filter in [false, true] {
        on_new_host(|| {
            filter_bridges(filter);
            let mut node = Node::new();
            run("ip", &["route", "add", "default", "dev", "lo"]);
            let [web, friend, stranger] = ["web", "friend", "stranger"].map(|name| node.pod(name));
            let mut services = proxied(&[web.ips[0]]);
            let vip = ip("10.96.0.10");
            assert!(stranger.get(vip, 80).starts_with("web saw"), "filter {filter}");
            node.put_policy(
                "p",
                json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress", "Egress"], "ingress": [
                    {"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}], "ports": [{"port": 8080}]},
                ]}),
            );
            let answer = friend.get(vip, 80);
            assert!(
                answer.starts_with("web saw"),
                "{answer}, filter {filter}\n{}",
                run("nft", &["list", "ruleset"])
            );
            assert!(is_silent(&stranger.get(vip, 80)), "filter {filter}");
            assert!(get(vip, 80).starts_with("web saw"), "the node");
            // Through the Service to itself, which nobody can forbid.
            assert!(web.get(vip, 80).starts_with("web saw"), "filter {filter}");
            services.apply(std::collections::BTreeMap::new()).unwrap();
            // What leaves through a Service is judged by where it goes.
            node.put_policy(
                "q",
                json!({"podSelector": {"matchLabels": {"app": "friend"}}, "policyTypes": ["Egress"], "egress": [
                    {"to": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": 80}]},
                ]}),
            );
            assert!(
                is_silent(&friend.get(vip, 80)),
                "80 is the Service's port, not the pod's"
            );
        });
    }
}

/// A Service at 10.96.0.10:80 that leads to port 8080 of these pods.
fn proxied(pods: &[std::net::IpAddr]) -> Applied<proxy::nftables::Nftables> {
    let options = proxy::nftables::NftablesOptions {
        table: "karve-proxy".to_owned(),
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        masquerade_bit: 0x4000,
        reserved_ports: Default::default(),
    };
    let mut services = Applied::new(proxy::nftables::Nftables::open(&options).unwrap());
    let endpoints: Vec<_> = pods
        .iter()
        .map(|ip| json!({"addresses": [ip], "nodeName": "here"}))
        .collect();
    let service = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"clusterIP": "10.96.0.10", "ports": [{"name": "http", "port": 80}]},
    }));
    let slice = serde_json::from_value(json!({"endpoints": endpoints, "ports": [{"name": "http", "port": 8080}]}));
    let around = proxy::model::Surroundings {
        node_name: "here".to_owned(),
        ..Default::default()
    };
    let ports = proxy::model::service_ports(&service.unwrap(), &[&slice.unwrap()], &around);
    services
        .apply([(client::Key::new("default", "web"), ports)].into())
        .unwrap();
    services
}

#[test]
fn connections_that_were_let_through_go_on() {
    on_new_host(|| {
        let mut node = Node::new();
        let [web, client] = ["web", "client"].map(|name| node.pod(name));
        let any = std::net::Ipv4Addr::UNSPECIFIED;
        let listener = web.namespace.run(|| TcpListener::bind((any, 7000))).unwrap().unwrap();
        let mut near = client
            .namespace
            .run(|| TcpStream::connect((web.ips[0], 7000)))
            .unwrap()
            .unwrap();
        let (mut far, _) = listener.accept().unwrap();
        node.put_policy("p", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
        assert!(is_silent(&client.get(web.ips[0], 8080)));
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        }
        let mut byte = [0];
        near.write_all(b"?").unwrap();
        far.read_exact(&mut byte).unwrap();
        far.write_all(b"!").unwrap();
        near.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"!");
    });
}

#[test]
fn removing_leaves_nothing() {
    on_new_host(|| {
        let mut node = Node::new();
        let pod = node.pod("a");
        node.put_policy("p", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
        let shown = run("nft", &["list", "ruleset"]);
        assert!(shown.contains(&pod.ips[0].to_string()));
        policy::remove(crate::node::TABLE).unwrap();
        policy::remove(crate::node::TABLE).unwrap();
        assert!(!run("nft", &["list", "tables"]).contains(crate::node::TABLE));
    });
}
