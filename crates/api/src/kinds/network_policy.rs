//! NetworkPolicy: who may talk to whom.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};
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
                    port.fill("protocol", "TCP");
                }
            }
        }
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

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Pod-Selector", "The pods that the policy is for."),
    AGE,
];
