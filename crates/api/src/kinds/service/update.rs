//! What an update of a service carries over from before, and what it drops.
//!
//! Clients send services without the addresses and ports that the server allocated; those stay as they are. When the
//! type changes, what only the old type has goes, unless the client set it to something new: that is an error for
//! validation to tell.

use std::collections::{HashMap, HashSet};

use serde_json::json;

use super::{has_cluster_ip, has_health_check_node_port, has_node_ports, is_externally_accessible};
use crate::{Fields, Value};

/// `clusterIPs` starts with `clusterIP`; a client may know only the older field.
pub fn name_first_address(spec: &mut Value) {
    if !spec.text("clusterIP").is_empty() && spec.list("clusterIPs").is_empty() {
        spec.set("clusterIPs", vec![spec["clusterIP"].clone()]);
    }
}

pub fn keep_allocations(new: &mut Value, old: &Value) {
    align_addresses(new, old);
    if has_cluster_ip(new) && has_cluster_ip(old) {
        let address = old["clusterIP"].clone();
        if new.text("clusterIP").is_empty() && !address.is_null() {
            new.set("clusterIP", address);
        }
        if new.list("clusterIPs").is_empty() && new["clusterIP"] == old["clusterIP"] && old.has("clusterIPs") {
            new.set("clusterIPs", old["clusterIPs"].clone());
        }
    }
    if has_node_ports(new) && has_node_ports(old) {
        keep_node_ports(new, old);
    }
    if has_health_check_node_port(new) && has_health_check_node_port(old) {
        new.fill_zero("healthCheckNodePort", old.number("healthCheckNodePort"));
    }
}

/// A client that knows only one of `clusterIP` and `clusterIPs` changes both by changing that one.
fn align_addresses(new: &mut Value, old: &Value) {
    let (single, list) = (
        new["clusterIP"] != old["clusterIP"],
        new["clusterIPs"] != old["clusterIPs"],
    );
    match (single, list) {
        (true, changed) if !changed || new.list("clusterIPs").is_empty() => match new.text("clusterIP") {
            "" => {
                new.remove("clusterIPs");
            }
            address => {
                let addresses = vec![Value::from(address)];
                new.set("clusterIPs", addresses);
            }
        },
        (false, true) if new.list("clusterIPs").is_empty() && new.has("clusterIP") => {
            let addresses = old["clusterIPs"].clone();
            if addresses.is_array() {
                new.set("clusterIPs", addresses);
            }
        }
        _ => {}
    }
}

fn keep_node_ports(new: &mut Value, old: &Value) {
    let mut used: HashSet<i64> = new.list("ports").iter().map(|port| port.number("nodePort")).collect();
    let mut before = HashMap::new();
    for port in old.list("ports") {
        before.entry((&port["port"], &port["protocol"])).or_insert(port);
    }
    for port in new.list_mut("ports") {
        if port.number("nodePort") != 0 {
            continue;
        }
        let Some(before) = before.get(&(&port["port"], &port["protocol"])) else {
            continue;
        };
        let node_port = before.number("nodePort");
        if node_port != 0 && used.insert(node_port) {
            port.set("nodePort", node_port);
        }
    }
}

pub fn drop_what_the_type_forbids(service: &mut Value, old: &Value) {
    let spec = service.ensure("spec");
    let drop_same = |spec: &mut Value, field: &str| {
        if spec[field] == old[field] {
            spec.remove(field);
        }
    };
    if has_cluster_ip(old) && !has_cluster_ip(spec) {
        if spec["clusterIP"] == old["clusterIP"] && spec["clusterIPs"] == old["clusterIPs"] {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        drop_same(spec, "ipFamilies");
        drop_same(spec, "ipFamilyPolicy");
        drop_same(spec, "internalTrafficPolicy");
    }
    let node_ports =
        |spec: &Value| -> Vec<i64> { spec.list("ports").iter().map(|port| port.number("nodePort")).collect() };
    if has_node_ports(old) && !has_node_ports(spec) && node_ports(old) == node_ports(spec) {
        for port in spec.list_mut("ports") {
            port.remove("nodePort");
        }
    }
    if has_health_check_node_port(old) && !has_health_check_node_port(spec) {
        drop_same(spec, "healthCheckNodePort");
    }
    if old.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer" {
        drop_same(spec, "allocateLoadBalancerNodePorts");
        drop_same(spec, "loadBalancerClass");
    }
    if is_externally_accessible(old) && !is_externally_accessible(spec) {
        drop_same(spec, "externalTrafficPolicy");
    }
    if spec.text("type") != "LoadBalancer" {
        service.ensure("status").set("loadBalancer", json!({}));
    }
}
