//! The endpoints that a service should have.

use std::collections::BTreeMap;

use api::Value;
use serde_json::json;

use super::View;
use crate::model::Pod;
use crate::services::service::Service;

/// Endpoints of one address type that share their ports, by their identity.
pub struct Group {
    pub ports: Vec<Value>,
    pub endpoints: BTreeMap<String, Value>,
}

/// The endpoints by their ports: pods may give one port name different numbers.
pub fn groups(view: &View, address_type: &str) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for pod in view.pods.iter().filter(|pod| !pod.is_finished()) {
        let Some(address) = pod.address(address_type) else {
            continue;
        };
        let ports = view.service.ports_of(pod);
        let group = groups.entry(json!(ports).to_string()).or_insert_with(|| Group {
            ports,
            endpoints: BTreeMap::new(),
        });
        let endpoint = endpoint(view, pod, &address);
        group.endpoints.insert(identity(&endpoint), endpoint);
    }
    groups.into_values().collect()
}

/// What makes an endpoint the same when its state changes: its pod and address.
pub fn identity(endpoint: &Value) -> String {
    format!("{}/{}", endpoint["targetRef"]["uid"], endpoint["addresses"])
}

/// The address types of a service, as slices name them.
pub fn address_types(service: &Service) -> Vec<&str> {
    let families: Vec<&str> = service.spec.ip_families.iter().map(String::as_str).collect();
    match families.as_slice() {
        [] if service.spec.cluster_ip.contains(':') => vec!["IPv6"],
        [] => vec!["IPv4"],
        families => families.to_vec(),
    }
}

fn endpoint(view: &View, pod: &Pod, address: &str) -> Value {
    let service = &view.service;
    let (serving, terminating) = (pod.is_ready(), pod.metadata.is_deleting());
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    let mut endpoint = json!({
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {
            "kind": "Pod",
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
        },
    });
    let node = &pod.spec.node_name;
    if !node.is_empty() {
        endpoint["nodeName"] = node.as_str().into();
    }
    if let Some(zone) = view.zones.get(node) {
        endpoint["zone"] = zone.as_str().into();
    }
    if !pod.spec.hostname.is_empty() && pod.spec.subdomain == service.metadata.name {
        endpoint["hostname"] = pod.spec.hostname.as_str().into();
    }
    if ready && let Some(hints) = hints(&service.spec.traffic_distribution, &endpoint) {
        endpoint["hints"] = hints;
    }
    endpoint
}

/// Whom a ready endpoint is meant for, as `spec.trafficDistribution` asks.
fn hints(distribution: &str, endpoint: &Value) -> Option<Value> {
    let by_node = distribution == "PreferSameNode";
    if !by_node && !matches!(distribution, "PreferClose" | "PreferSameZone") {
        return None;
    }
    let mut hints = json!({});
    if let Some(zone) = endpoint["zone"].as_str() {
        hints["forZones"] = json!([{"name": zone}]);
    }
    if let Some(node) = endpoint["nodeName"].as_str().filter(|_| by_node) {
        hints["forNodes"] = json!([{"name": node}]);
    }
    hints
        .as_object()
        .is_some_and(|hints| !hints.is_empty())
        .then_some(hints)
}
