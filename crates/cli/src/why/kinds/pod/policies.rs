//! NetworkPolicies that select a pod.

use api::Value;
use api::kinds::network_policy::NETWORK_POLICY;

use crate::why::facts::{Facts, selector, selects};
use crate::why::finding::Finding;
use crate::why::kinds::network_policy::rule_text;
use crate::why::look::Look;

pub fn is_isolated(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let policies = facts.list_in(&NETWORK_POLICY, pod.namespace());
    let policies: Vec<&Value> = policies
        .filter(|policy| selects(&selector(policy, "spec.podSelector"), pod))
        .collect();
    let mut found = Vec::new();
    for (direction, rules) in [("Ingress", "spec.ingress"), ("Egress", "spec.egress")] {
        let isolating: Vec<&&Value> = policies
            .iter()
            .filter(|policy| policy.texts("spec.policyTypes").contains(&direction))
            .collect();
        if isolating.is_empty() {
            continue;
        }
        let names: Vec<&str> = isolating.iter().map(|policy| policy.name()).collect();
        let way = if direction == "Ingress" {
            "traffic to it"
        } else {
            "traffic from it"
        };
        let finding = Finding::note(
            "isolated",
            format!("NetworkPolicies restrict {way} ({direction}): {}.", names.join(", ")),
        );
        let lines = isolating.iter().flat_map(|policy| {
            let rules = policy.items(rules);
            let name = policy.name();
            match rules.is_empty() {
                true => vec![format!("{name} allows no traffic.")],
                false => rules
                    .iter()
                    .map(|rule| format!("{name} allows {}.", rule_text(rule, direction)))
                    .collect(),
            }
        });
        found.push(finding.details(lines));
    }
    found
}
