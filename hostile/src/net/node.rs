//! What pods reach of their node.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::cluster::{API_PORT, KUBELET_PORT};
use crate::network::NODE;
use crate::pods::{container, pod_spec};
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::World;

pub const LOOPBACK_OF_THE_NODE: Case = Case {
    name: "network/loopback-of-the-node",
    class: "CVE-2020-8558",
    must_not: "A pod reaches what listens on the node's loopback address only.",
    needs: &[],
    run: loopback_of_the_node,
};

pub const PORTS_OF_THE_NODE: Case = Case {
    name: "network/ports-of-the-node",
    class: "",
    must_not: "A pod finds ports of the node beyond those of Kubernetes, or is answered there without credentials.",
    needs: &[],
    run: ports_of_the_node,
};

/// The name server's own ports, which answer everybody by design.
const DNS_PORTS: &[u16] = &[10053];

/// Where load balancers ask whether the node's proxy is healthy, as kube-proxy's: it tells that and nothing else.
const PROXY_HEALTH_PORT: u16 = 10256;

fn loopback_of_the_node(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut main = container(&["wait"]);
    main["securityContext"] = json!({"capabilities": {"add": ["NET_RAW"]}});
    let pod = namespace.pod(pod_spec(vec![main], json!([])))?;
    pod.running()?;
    let own = pod.address()?;
    let hidden = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let open = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let ports = [
        hidden.local_addr()?.port().to_string(),
        open.local_addr()?.port().to_string(),
    ];

    let node = NODE.to_string();
    pod.must(&["raw-datagram", "gateway", &own, &node, &ports[1], "honest"])?;
    ensure!(
        received(&open)? == "honest",
        "not even a packet to the node's own address arrived"
    );
    for target in ["127.0.0.1", "127.0.0.53", "127.1.1.1"] {
        for source in [own.as_str(), "127.0.0.1", "127.0.0.2"] {
            pod.must(&["raw-datagram", "gateway", source, target, &ports[0], "hostile"])?;
            pod.must(&["raw-datagram", "gateway", source, target, &ports[1], "hostile"])?;
        }
    }
    let (one, other) = (received(&hidden)?, received(&open)?);
    match one.is_empty() && other.is_empty() {
        true => blocked("18 packets to the node's loopback address, none of which arrived"),
        false => succeeded(format!("the node's loopback received {one:?}{other:?}")),
    }
}

fn received(socket: &UdpSocket) -> Result<String> {
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut block = [0; 256];
    match socket.recv(&mut block) {
        Ok(count) => Ok(String::from_utf8_lossy(&block[..count]).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(String::new()),
        Err(error) => Err(error.into()),
    }
}

fn ports_of_the_node(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.attacker()?;
    let all = listening()?;
    let kubernetes: BTreeSet<u16> = [API_PORT, KUBELET_PORT].into_iter().collect();
    ensure!(
        kubernetes.is_subset(&all),
        "the ports of Kubernetes were not found among {all:?}"
    );
    let mut attempts = Vec::new();
    let node = NODE.to_string();
    let is_open_by_design = |port: &u16| DNS_PORTS.contains(port) || *port == PROXY_HEALTH_PORT;
    for port in all.difference(&kubernetes).filter(|port| !is_open_by_design(port)) {
        let answer = pod.act(&["ask", &node, &port.to_string(), "/"])?;
        attempts.push(Verdict::Succeeded(format!(
            "the node listens on {port} for everybody: {} {}",
            answer.error,
            answer.text()
        )));
    }
    for path in ["/metrics", "/configz", "/debug/pprof/", "/debug/flags/v"] {
        let answer = pod.act(&["ask", &node, &PROXY_HEALTH_PORT.to_string(), path])?;
        let text = answer.text();
        attempts.push(match text.starts_with("HTTP/1.1 404") {
            true => Verdict::Blocked(format!("{PROXY_HEALTH_PORT}{path}: 404")),
            false => Verdict::Succeeded(format!(
                "{PROXY_HEALTH_PORT}{path} was answered: {} {text}",
                answer.error
            )),
        });
    }
    for (port, path) in [
        (API_PORT, "/api/v1/secrets"),
        (API_PORT, "/debug/karve/backup"),
        (KUBELET_PORT, "/pods"),
        (KUBELET_PORT, "/metrics"),
    ] {
        let answer = pod.act(&["ask-tls", &node, &port.to_string(), path])?;
        let status = answer.value["status"]
            .as_u64()
            .with_context(|| format!("{port}{path}: {}", answer.error))?;
        attempts.push(match status {
            401 | 403 => Verdict::Blocked(format!("{port}{path}: {status}")),
            _ => Verdict::Succeeded(format!("{port}{path} was answered {status}")),
        });
    }
    judge(&attempts)
}

/// TCP ports that are open on other addresses than loopback.
fn listening() -> Result<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(&"0A")) = (fields.get(1), fields.get(3)) else {
                continue;
            };
            let (address, port) = local.split_once(':').context("an address has a port")?;
            let loopback = address == "0100007F" || address == "00000000000000000000000001000000";
            if !loopback {
                ports.insert(u16::from_str_radix(port, 16)?);
            }
        }
    }
    Ok(ports)
}
