//! Which addresses a Service gets.

use std::net::IpAddr;
use std::sync::Arc;

use client::Object;
use serde_json::Value;

use super::View;
use super::rivals::{self, Port};
use crate::model::Node;
use crate::services::cluster_dns::{DNS_PORT, is_of_a_machine};
use crate::services::service::Service;
use crate::settings::AddressSource;

/// Nodes with this label take no traffic from outside.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The cluster autoscaler is about to remove nodes with this taint.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// The addresses of one Service at most: its status has to stay an object of sensible size.
const MAX_ADDRESSES: usize = 64;

/// What of a Node addresses follow from.
#[derive(PartialEq, Eq)]
pub struct NodeFacts {
    takes_traffic: bool,
    addresses: Vec<IpAddr>,
    reserved: Vec<Port>,
}

pub fn facts(node: &Node) -> NodeFacts {
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let is_going = node.spec.taints.iter().any(|taint| taint["key"] == TO_BE_DELETED);
    let excluded = node.metadata.labels.contains_key(EXCLUDED) || node.metadata.is_deleting() || is_going;
    let internal = node.status.addresses.iter().filter(|entry| entry.kind == "InternalIP");
    let kubelet = u16::try_from(node.status.daemon_endpoints.kubelet_endpoint.port).ok();
    let dns = node
        .metadata
        .annotations
        .get(DNS_PORT)
        .and_then(|text| text.parse().ok());
    let dns = dns.into_iter().flat_map(|port| [("TCP", port), ("UDP", port)]);
    let reserved = kubelet.into_iter().map(|port| ("TCP", port)).chain(dns);
    NodeFacts {
        takes_traffic: !excluded && node.status.conditions.iter().any(is_ready),
        addresses: internal
            .filter_map(|entry| entry.address.parse().ok())
            .filter(is_of_a_machine)
            .collect(),
        reserved: reserved.map(|(protocol, port)| (protocol.to_owned(), port)).collect(),
    }
}

/// The addresses of a Service, and why they are fewer than could be.
pub fn decide(view: &View<'_>) -> (Vec<IpAddr>, Option<String>) {
    match &view.settings.source {
        AddressSource::Nodes => of_nodes(view),
        AddressSource::Pool(pool) => of_pool(view, pool),
    }
}

fn of_nodes(view: &View<'_>) -> (Vec<IpAddr>, Option<String>) {
    let service = view.service;
    if let Some(why) = forbidden_port(view) {
        return (Vec::new(), Some(why));
    }
    let mut nodes: Vec<&Arc<Node>> = view.nodes.iter().collect();
    nodes.sort_by_key(|node| (&node.metadata.creation_timestamp, &node.metadata.name));
    let (mut found, mut lack, mut any) = (Vec::new(), None, false);
    for node in nodes {
        let facts = facts(node);
        let serves = !service.is_external_local() || view.nodes_with_endpoints.contains(&node.metadata.name);
        if !facts.takes_traffic || !serves {
            continue;
        }
        for &address in facts
            .addresses
            .iter()
            .filter(|address| is_of_family(service, **address))
        {
            any = true;
            let reserved = rivals::ports(service).find(|port| facts.reserved.contains(port));
            match (reserved, rivals::owner(service, address, &view.rivals, view.given)) {
                (Some(port), _) => lack = lack.or_else(|| Some(of_component(&port, &node.metadata.name))),
                (None, Some((rival, port))) => lack = lack.or_else(|| Some(taken(&port, address, rival))),
                (None, None) if !found.contains(&address) => found.push(address),
                (None, None) => {}
            }
        }
    }
    if !any {
        let what = match service.is_external_local() {
            true => "there are no available nodes with a ready endpoint, which externalTrafficPolicy Local asks for",
            false => "there are no available nodes for LoadBalancer",
        };
        lack = Some(what.to_owned());
    }
    found.truncate(MAX_ADDRESSES);
    (found, lack)
}

fn of_pool(view: &View<'_>, pool: &[crate::settings::AddressRange]) -> (Vec<IpAddr>, Option<String>) {
    let service = view.service;
    let in_pool = |address: &IpAddr| pool.iter().any(|range| range.contains(*address));
    let is_free = |address: &IpAddr| rivals::holder(service, *address, &view.rivals, view.given).is_none();
    let mut found = Vec::new();
    for family in families(service) {
        let fits = |address: &IpAddr| address.is_ipv4() == family && in_pool(address) && is_free(address);
        let asked: Option<IpAddr> = service.spec.load_balancer_ip.parse().ok();
        if let Some(asked) = asked.filter(|asked| asked.is_ipv4() == family) {
            if !fits(&asked) {
                return (
                    Vec::new(),
                    Some(format!("the address {asked} is not free or not in the pool")),
                );
            }
            found.push(asked);
            continue;
        }
        let had = service.status.load_balancer.addresses().find(fits);
        let next = || pool.iter().flat_map(|range| range.addresses()).find(fits);
        match had.or_else(next) {
            Some(address) => found.push(address),
            None => return (found, Some("no address of the pool is free".to_owned())),
        }
    }
    (found, None)
}

/// A port that no Service may have at the address of a node.
fn forbidden_port(view: &View<'_>) -> Option<String> {
    let mut ports = rivals::ports(view.service);
    let port =
        ports.find(|port| view.settings.reserved_ports.contains(port) || view.settings.node_ports.contains(&port.1))?;
    let (protocol, number) = &port;
    Some(match view.settings.node_ports.contains(number) {
        true => format!("port {number}/{protocol} is in the range of node ports"),
        false => format!("port {number}/{protocol} is that of a component of the cluster"),
    })
}

fn of_component((protocol, number): &Port, node: &str) -> String {
    format!("port {number}/{protocol} is that of a component of node {node}")
}

fn taken((protocol, number): &Port, address: IpAddr, owner: &Service) -> String {
    format!(
        "port {number}/{protocol} of {address} belongs to Service {}",
        owner.key()
    )
}

fn is_of_family(service: &Service, address: IpAddr) -> bool {
    families(service).contains(&address.is_ipv4())
}

/// The families that a Service has, true for IPv4.
fn families(service: &Service) -> Vec<bool> {
    match service.spec.ip_families.is_empty() {
        true => vec![!service.spec.cluster_ip.contains(':')],
        false => service.spec.ip_families.iter().map(|family| family == "IPv4").collect(),
    }
}
