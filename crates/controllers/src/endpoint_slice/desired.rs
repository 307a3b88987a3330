//! The endpoints that a service should have.

use std::collections::BTreeMap;

use api::Value;
use serde_json::json;

use super::{Service, ServicePort, View};
use crate::model::{Container, Pod};

/// Endpoints of one address type that share their ports, by their identity.
pub struct Group {
    pub ports: Vec<Value>,
    pub endpoints: BTreeMap<String, Value>,
}

/// The endpoints by their ports: pods may give one port name different numbers.
pub fn groups(view: &View, address_type: &str) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for pod in view.pods.iter().filter(|pod| !pod.is_finished()) {
        let Some(address) = address_of(pod, address_type) else {
            continue;
        };
        let ports = ports(&view.service, pod);
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

fn address_of(pod: &Pod, address_type: &str) -> Option<String> {
    let status = &pod.status;
    let all = status.pod_ips.iter().map(|address| address.ip.as_str());
    let wants_v6 = address_type == "IPv6";
    let mut all = all
        .chain([status.pod_ip.as_str()])
        .filter(|address| !address.is_empty());
    all.find(|address| address.contains(':') == wants_v6).map(str::to_owned)
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
    endpoint
}

/// The service's ports as they are on this pod; a name that the pod does not have is left out.
fn ports(service: &Service, pod: &Pod) -> Vec<Value> {
    let ports = service.spec.ports.iter().filter_map(|port| {
        let protocol = protocol(&port.protocol);
        let mut value = json!({"name": port.name, "protocol": protocol, "port": target(port, pod)?});
        if let Some(app_protocol) = &port.app_protocol {
            value["appProtocol"] = app_protocol.as_str().into();
        }
        Some(value)
    });
    ports.collect()
}

fn target(port: &ServicePort, pod: &Pod) -> Option<u64> {
    let Some(name) = port.target_port.as_str() else {
        let number = port.target_port.as_u64().filter(|number| *number != 0);
        return Some(number.unwrap_or(u64::from(port.port)));
    };
    let is_sidecar = |container: &&Container| container.restart_policy == "Always";
    let sidecars = pod.spec.init_containers.iter().filter(is_sidecar);
    let mut ports = pod
        .spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| &container.ports);
    let found = ports.find(|found| found.name == name && protocol(&found.protocol) == protocol(&port.protocol));
    found.map(|found| u64::from(found.container_port))
}

fn protocol(text: &str) -> &str {
    if text.is_empty() { "TCP" } else { text }
}
