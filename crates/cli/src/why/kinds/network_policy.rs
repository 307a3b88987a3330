//! NetworkPolicies.

use api::Value;
use api::kinds::network_policy::NETWORK_POLICY;
use api::kinds::pod::POD;

use crate::why::State;
use crate::why::facts::{Facts, selector, selects};
use crate::why::finding::Finding;
use crate::why::look::{self, Look};
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &NETWORK_POLICY,
    reads: &[&POD],
    state,
    checks: &[selects_nothing, what_it_allows],
};

fn selected(facts: &Facts, policy: &Value) -> usize {
    let selector = selector(policy, "spec.podSelector");
    let pods = facts.list_in(&POD, policy.namespace());
    pods.filter(|pod| selects(&selector, pod)).count()
}

fn state(facts: &Facts, policy: &Value) -> State {
    State::Healthy(format!("it selects {}.", look::count(selected(facts, policy), "pod")))
}

fn selects_nothing(facts: &Facts, policy: &Value) -> Vec<Finding> {
    if !facts.knows(&POD) || selected(facts, policy) > 0 {
        return Vec::new();
    }
    let selector = selector(policy, "spec.podSelector");
    vec![
        Finding::note(
            "selects-nothing",
            format!("spec.podSelector \"{selector}\" matches no pod in the namespace."),
        )
        .next("If it should select pods, correct spec.podSelector."),
    ]
}

fn what_it_allows(_: &Facts, policy: &Value) -> Vec<Finding> {
    let types = policy.texts("spec.policyTypes").into_iter();
    types
        .map(|direction| {
            let rules = policy.items(if direction == "Ingress" {
                "spec.ingress"
            } else {
                "spec.egress"
            });
            let finding = Finding::note(
                "allows",
                match direction {
                    "Ingress" => "Ingress to its pods is allowed for:",
                    _ => "Egress from its pods is allowed for:",
                },
            );
            match rules.is_empty() {
                true => finding.detail("nothing"),
                false => finding.details(rules.iter().map(|rule| rule_text(rule, direction))),
            }
        })
        .collect()
}

/// A rule in words.
pub fn rule_text(rule: &Value, direction: &str) -> String {
    let (field, word) = match direction {
        "Ingress" => ("from", "from"),
        _ => ("to", "to"),
    };
    let peers: Vec<String> = rule.items(field).iter().map(peer_text).collect();
    let ports: Vec<String> = rule.items("ports").iter().map(port_text).collect();
    let peers = match peers.is_empty() {
        true => format!("{word} anywhere"),
        false => format!("{word} {}", peers.join(" or ")),
    };
    match ports.is_empty() {
        true => format!("all ports {peers}"),
        false => format!("port {} {peers}", ports.join(", ")),
    }
}

fn port_text(port: &Value) -> String {
    let number = match port.at("port") {
        Value::String(name) => name.clone(),
        Value::Null => "any".to_owned(),
        number => number.to_string(),
    };
    match port.at("endPort").as_i64() {
        Some(end) => format!("{number}-{end}/{}", port.str("protocol")),
        None => format!("{number}/{}", port.str("protocol")),
    }
}

fn peer_text(peer: &Value) -> String {
    let block = peer.str("ipBlock.cidr");
    if !block.is_empty() {
        return block.to_owned();
    }
    let pods = match selector(peer, "podSelector") {
        selector if selector.is_empty() => "all pods".to_owned(),
        selector => format!("pods with {selector}"),
    };
    match peer.at("namespaceSelector").is_null() {
        true => format!("{pods} in this namespace"),
        false => match selector(peer, "namespaceSelector") {
            selector if selector.is_empty() => format!("{pods} in all namespaces"),
            selector => format!("{pods} in namespaces with {selector}"),
        },
    }
}

/// The number of a port that may be given by its name in the containers.
pub fn resolve_port(port: &Value, pod: &Value) -> Option<i64> {
    if let Some(number) = port.as_i64() {
        return Some(number);
    }
    let name = port.as_str()?;
    let containers = pod.items("spec.containers").iter();
    let mut ports = containers.flat_map(|container| container.items("ports"));
    ports
        .find(|port| port.str("name") == name)
        .map(|port| port.int("containerPort"))
}

pub fn rule_allows_port(rule: &Value, target: i64, protocol: &str, pod: &Value) -> bool {
    let ports = rule.items("ports");
    ports.is_empty()
        || ports.iter().any(|port| {
            let same_protocol = port.str("protocol").is_empty() || port.str("protocol") == protocol;
            let first = resolve_port(port.at("port"), pod);
            let last = port.at("endPort").as_i64().or(first);
            let is_any = port.at("port").is_null();
            let in_range = first
                .zip(last)
                .is_some_and(|(first, last)| (first..=last).contains(&target));
            same_protocol && (is_any || in_range)
        })
}
