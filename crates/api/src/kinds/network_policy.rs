//! NetworkPolicy: who may talk to whom.

use std::net::IpAddr;

use crate::names::{cidr, port_name, port_number};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value, validate_label_selector};
use serde_json::json;

pub static NETWORK_POLICY: Resource = Resource::namespaced(
    "networking.k8s.io",
    "v1",
    "NetworkPolicy",
    "networkpolicies",
    "networkpolicy",
)
.short(&["netpol"])
.with_rules(&NetworkPolicyRules);

/// The annotation in which a node says whether NetworkPolicies hold for its pods: "true" or "false". Nodes that do not
/// say may have a network plugin that enforces them.
pub const ENFORCED_ON_NODE: &str = "karve.dev/network-policies-enforced";

struct NetworkPolicyRules;

impl Rules for NetworkPolicyRules {
    fn default(&self, policy: &mut Value) {
        let spec = policy.ensure("spec");
        if spec.list("policyTypes").is_empty() {
            let egress = !spec.list("egress").is_empty();
            spec.set(
                "policyTypes",
                if egress {
                    json!(["Ingress", "Egress"])
                } else {
                    json!(["Ingress"])
                },
            );
        }
        for direction in ["ingress", "egress"] {
            for rule in spec.list_mut(direction) {
                for port in rule.list_mut("ports") {
                    port.fill_absent("protocol", "TCP");
                }
            }
        }
    }

    fn validate(&self, policy: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&policy["spec"], Path::new("spec"));
        problems.extend(validate_label_selector(
            &spec["podSelector"],
            &path.child("podSelector"),
        ));
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for (index, rule) in spec.list(direction).iter().enumerate() {
                let path = path.child(direction).index(index);
                for (index, port) in rule.list("ports").iter().enumerate() {
                    validate_port(port, &path.child("ports").index(index), &mut problems);
                }
                for (index, peer) in rule.list(peers).iter().enumerate() {
                    validate_peer(peer, &path.child(peers).index(index), &mut problems);
                }
            }
        }
        let kinds = spec.list("policyTypes");
        if kinds.len() > 2 {
            let detail = "may not specify more than two policyTypes";
            problems.invalid(&path, "policyTypes", kinds.to_vec(), detail);
            return problems.into_vec();
        }
        for (index, kind) in spec.list("policyTypes").iter().enumerate() {
            let kind = kind.as_str().unwrap_or_default();
            if !matches!(kind, "Ingress" | "Egress") {
                let path = path.child("policyTypes").index(index);
                problems.extend([FieldError::not_supported(&path, kind, &["Ingress", "Egress"])]);
            }
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, policy: &Value, now: i64) -> Vec<Value> {
        vec![
            print::name(policy),
            print::selector(&policy["spec"]["podSelector"]),
            print::age(policy, now),
        ]
    }
}

fn validate_port(port: &Value, path: &Path, problems: &mut Problems) {
    problems.optional_one_of(port, path, "protocol", &["TCP", "UDP", "SCTP"]);
    let end = port["endPort"].as_i64();
    match (&port["port"], end) {
        (Value::Null, Some(end)) => {
            problems.invalid(
                path,
                "endPort",
                end,
                "may not be specified when `port` is not specified",
            );
        }
        (Value::Null, None) => {}
        (Value::String(name), end) => {
            if let Some(end) = end {
                problems.invalid(path, "endPort", end, "may not be specified when `port` is non-numeric");
            }
            problems.form(path, "port", name.as_str(), port_name(name));
        }
        (number, end) => {
            let number = number.as_i64().unwrap_or_default();
            problems.form(path, "port", number, port_number(number));
            if let Some(end) = end {
                if end < number {
                    problems.invalid(path, "endPort", number, "must be greater than or equal to `port`");
                }
                problems.form(path, "endPort", end, port_number(end));
            }
        }
    }
}

fn validate_peer(peer: &Value, path: &Path, problems: &mut Problems) {
    let block = &peer["ipBlock"];
    let selectors = ["podSelector", "namespaceSelector"].map(|field| (field, peer.has(field)));
    let others = selectors.iter().filter(|(_, set)| *set).count();
    match (block.is_object(), others) {
        (false, 0) => problems.required(path, "", "must specify a peer"),
        (true, 1..) => problems.forbidden(path, "", "may not specify both ipBlock and another peer"),
        _ => {}
    }
    for (field, _) in selectors {
        problems.extend(validate_label_selector(&peer[field], &path.child(field)));
    }
    if block.is_object() {
        let path = path.child("ipBlock");
        validate_block(block, &path, problems);
    }
}

/// What is excepted lies inside of the block, and is not all of it.
fn validate_block(block: &Value, path: &Path, problems: &mut Problems) {
    let text = block.text("cidr");
    if !problems.needs(block, path, "cidr") {
        return;
    }
    let found = cidr(text);
    if !found.is_empty() {
        return problems.form(path, "cidr", text, found);
    }
    for (index, except) in block.list("except").iter().enumerate() {
        let (except, place) = (except.as_str().unwrap_or_default(), path.child("except").index(index));
        let found = cidr(except);
        if !found.is_empty() {
            problems.form(&place, "", except, found);
        } else if !is_strictly_inside(except, text) {
            problems.invalid(&place, "", except, "must be a strict subset of `cidr`");
        }
    }
}

fn is_strictly_inside(inner: &str, outer: &str) -> bool {
    let parse = |text: &str| {
        let (address, length) = text.split_once('/')?;
        Some((address.parse::<IpAddr>().ok()?, length.parse::<u32>().ok()?))
    };
    let (Some((inner, inner_length)), Some((outer, outer_length))) = (parse(inner), parse(outer)) else {
        return false;
    };
    let differing = match (inner, outer) {
        (IpAddr::V4(inner), IpAddr::V4(outer)) => (u32::from(inner) ^ u32::from(outer)).leading_zeros(),
        (IpAddr::V6(inner), IpAddr::V6(outer)) => (u128::from(inner) ^ u128::from(outer)).leading_zeros(),
        _ => return false,
    };
    differing >= outer_length && inner_length > outer_length
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Pod-Selector", "The pods that the policy is for."),
    AGE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_a_part_of_its_block() {
        assert!(is_strictly_inside("10.1.2.0/24", "10.1.0.0/16"));
        assert!(is_strictly_inside("2001:db8:1::/48", "2001:db8::/32"));
        assert!(!is_strictly_inside("10.1.0.0/16", "10.1.0.0/16"));
        assert!(!is_strictly_inside("10.0.0.0/8", "10.1.0.0/16"));
        assert!(!is_strictly_inside("10.2.0.0/24", "10.1.0.0/16"));
    }
}
