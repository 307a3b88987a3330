//! What others break is repaired, without a pod that comes or goes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use network::PortMapping;
use network::Protocol;
use network::bridge::{self, Bridge, BridgeOptions};
use network::host_gateway::{self, Gateways};
use tokio::sync::watch;

use crate::support::{Pod, block_on, eventually, get, neighbour, on_new_host, run};

fn options(dir: &Path) -> BridgeOptions {
    BridgeOptions {
        pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..BridgeOptions::new(dir.join("network"))
    }
}

fn open(dir: &Path) -> Bridge {
    bridge::open(options(dir)).unwrap()
}

/// Waits for something to hold, and says how long it took.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} was never repaired");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{what}: repaired after {:?}", start.elapsed());
}

/// Whether the bridge is up, has its address and both pods. Asks nothing of the network, so that whoever repairs has its
/// turn.
fn is_whole() -> bool {
    let ip = |arguments: &[&str]| {
        let output = Command::new("ip").args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let address = ip(&["address", "show", "dev", "karve0"]);
    let ports = ip(&["-o", "link", "show", "master", "karve0"]);
    address.contains("10.244.0.1/24") && address.contains(",UP") && ports.matches(",UP").count() == 2
}

/// The packet rules and elements of sets, whatever order they were made in and however they are broken into lines.
fn rules() -> Vec<String> {
    let shown = run("nft", &["list", "ruleset"]).replace("elements =", ",");
    let parts = shown.split([',', '{', '}', '\n']).map(|part| part.trim().to_owned());
    let mut parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    parts.sort_unstable();
    parts
}

/// Two pods, a host port that leads to the first, and somebody who keeps the network as it should be.
fn with_pods(test: impl AsyncFnOnce(&Pod, &Pod)) {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path());
        block_on(async {
            let mapping = PortMapping {
                host_ip: None,
                host_port: 7000,
                container_port: 8080,
                protocol: Protocol::Tcp,
            };
            let web = Pod::new("web").with_ports(&[mapping]).connected(&network).await;
            let client = Pod::new("client").connected(&network).await;
            web.serve_tcp(8080);
            let kept = network.clone();
            let keeping = tokio::spawn(async move { kept.keep().await });
            // The task listens once it has been run.
            tokio::task::yield_now().await;
            assert!(client.get(web.ips[0], 8080).starts_with("web saw"));
            test(&web, &client).await;
            assert!(!keeping.is_finished());
            keeping.abort();
        });
    });
}

#[test]
fn a_deleted_bridge_is_made_again_with_all_its_ports() {
    with_pods(async |web, client| {
        run("ip", &["link", "del", "karve0"]);
        until("the bridge", is_whole).await;
        until("the way", || client.get(web.ips[0], 8080).starts_with("web saw")).await;
        assert!(get(web.ips[0], 8080).starts_with("web saw"));
    });
}

#[test]
fn a_bridge_that_is_down_or_lost_its_address_is_brought_back() {
    with_pods(async |web, client| {
        run("ip", &["link", "set", "karve0", "down"]);
        until("the bridge", is_whole).await;
        assert!(client.get(web.ips[0], 8080).starts_with("web saw"));
        run("ip", &["address", "flush", "dev", "karve0"]);
        until("the address", is_whole).await;
        assert!(client.get(web.ips[0], 8080).starts_with("web saw"));
    });
}

#[test]
fn a_port_that_was_taken_away_or_deleted_is_put_back() {
    with_pods(async |web, client| {
        let ports = run("ip", &["-o", "link", "show", "master", "karve0"]);
        let names: Vec<&str> = ports
            .lines()
            .filter_map(|line| line.split(": ").nth(1)?.split('@').next())
            .collect();
        assert_eq!(names.len(), 2);
        run("ip", &["link", "set", names[0], "nomaster"]);
        until("the port", is_whole).await;
        until("the way", || client.get(web.ips[0], 8080).starts_with("web saw")).await;
        for name in names {
            run("ip", &["link", "del", name]);
        }
        until("the links", is_whole).await;
        until("the way", || client.get(web.ips[0], 8080).starts_with("web saw")).await;
    });
}

#[test]
fn rules_that_were_flushed_are_made_again() {
    with_pods(async |web, client| {
        let before = rules();
        assert!(get("10.244.0.1".parse().unwrap(), 7000).starts_with("web saw"));
        run("nft", &["flush", "ruleset"]);
        until("the rules", || rules() == before).await;
        assert!(get("10.244.0.1".parse().unwrap(), 7000).starts_with("web saw"));
        assert!(client.get(web.ips[0], 8080).starts_with("web saw"));
        run("nft", &["delete", "table", "bridge", "karve0-guard"]);
        until("the guard", || rules() == before).await;
    });
}

/// Their namespaces are known again once the runtime has said which sandboxes survived.
#[test]
fn links_of_pods_that_an_earlier_process_connected_are_made_again() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path());
        block_on(async {
            let web = Pod::new("web").connected(&network).await;
            let client = Pod::new("client").connected(&network).await;
            web.serve_tcp(8080);
            drop(network);
            let network = eventually(|| bridge::open(options(dir.path())));
            let live = [web.sandbox.clone(), client.sandbox.clone()];
            network::PodNetwork::reconcile(&network, &live).await.unwrap();
            let kept = network.clone();
            let keeping = tokio::spawn(async move { kept.keep().await });
            run("ip", &["link", "del", "karve0"]);
            until("the bridge", is_whole).await;
            let interface = network.interface_of(web.ips[0]).unwrap();
            run("ip", &["link", "del", &interface]);
            until("the link", is_whole).await;
            until("the way", || client.get(web.ips[0], 8080).starts_with("web saw")).await;
            keeping.abort();
        });
    });
}

/// Nothing that changes while links are looked at is missed.
#[test]
fn rules_that_are_flushed_while_links_are_repaired_are_made_again() {
    with_pods(async |_, _| {
        let before = rules();
        for _ in 0..5 {
            run("ip", &["link", "set", "karve0", "down"]);
            run("nft", &["flush", "ruleset"]);
            until("the rules", || rules() == before).await;
            until("the bridge", is_whole).await;
        }
    });
}

#[test]
fn routes_to_other_nodes_come_back_when_somebody_removes_them() {
    on_new_host(|| {
        let _outside = neighbour("outside");
        block_on(async {
            let cluster = vec!["10.244.0.0/16".parse().unwrap()];
            let gateway = |text: &str| Gateways::from([("10.244.1.0/24".parse().unwrap(), text.parse().unwrap())]);
            let wanted = watch::Sender::new(gateway("192.0.2.2"));
            let keeping = tokio::spawn(host_gateway::keep(cluster, wanted.subscribe()));
            let routed = |to: &str| run("ip", &["route", "show", "10.244.1.0/24"]).contains(to);
            until("the route", || routed("via 192.0.2.2")).await;
            run("ip", &["route", "del", "10.244.1.0/24"]);
            until("the route", || routed("via 192.0.2.2")).await;
            let link = run("ip", &["-o", "route", "get", "192.0.2.2"]);
            let link = link
                .split(" dev ")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .to_owned();
            run("ip", &["link", "set", &link, "down"]);
            assert!(!routed("via"));
            run("ip", &["link", "set", &link, "up"]);
            until("the route over a link that was down", || routed("via 192.0.2.2")).await;
            wanted.send_replace(gateway("192.0.2.3"));
            until("the new route", || routed("via 192.0.2.3")).await;
            keeping.abort();
        });
    });
}

/// What this process does itself is no reason to repair anything.
#[test]
fn a_pod_that_is_disconnected_stays_so() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = open(dir.path());
        block_on(async {
            let kept = network.clone();
            let keeping = tokio::spawn(async move { kept.keep().await });
            tokio::task::yield_now().await;
            for round in 0..10 {
                let pod = Pod::new(&format!("pod{round}")).connected(&network).await;
                network::PodNetwork::teardown(&network, &pod.sandbox).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(run("ip", &["-o", "link", "show", "master", "karve0"]), "");
            keeping.abort();
        });
    });
}
