//! The FlowSchemas and PriorityLevelConfigurations that every cluster begins with: upstream's.

use api::{Value, kinds};
use serde_json::json;

use registry::Seed;

/// While this annotation is `true`, the server keeps the object's spec as it is here.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Objects without which requests could not be sorted: they come back when they are deleted.
pub const MANDATORY: &[&str] = &["catch-all", "exempt"];

/// Name, shares, percent of them lent, and queues with the size of a hand.
type LimitedLevel = (&'static str, usize, usize, Option<(usize, usize)>);

const LEVELS: &[LimitedLevel] = &[
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some((128, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("node-high", 40, 25, Some((64, 6))),
    ("system", 30, 33, Some((64, 6))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
];
const QUEUE_LENGTH_LIMIT: usize = 50;

pub fn seeds() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = LEVELS.iter().map(limited).collect();
    seeds.push(level(
        "exempt",
        json!({ "type": "Exempt", "exempt": { "nominalConcurrencyShares": 0, "lendablePercent": 0 } }),
    ));
    let everyone = || json!([group("system:unauthenticated"), group("system:authenticated")]);
    let schemas = [
        (
            "exempt",
            "exempt",
            1,
            "",
            rule(json!([group("system:masters")]), everything()),
        ),
        ("probes", "exempt", 2, "", rule(everyone(), probes())),
        (
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            rule(leaders(), leases(&["get", "create", "update"])),
        ),
        (
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            rule(json!([group("system:nodes")]), heartbeats()),
        ),
        (
            "system-nodes",
            "system",
            500,
            "ByUser",
            rule(json!([group("system:nodes")]), everything()),
        ),
        (
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            rule(json!([user("system:kube-controller-manager")]), everything()),
        ),
        (
            "kube-scheduler",
            "workload-high",
            800,
            "ByNamespace",
            rule(json!([user("system:kube-scheduler")]), everything()),
        ),
        (
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            rule(json!([system_accounts()]), everything()),
        ),
        (
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            rule(json!([group("system:serviceaccounts")]), everything()),
        ),
        (
            "global-default",
            "global-default",
            9900,
            "ByUser",
            rule(everyone(), everything()),
        ),
        (
            "catch-all",
            "catch-all",
            10_000,
            "ByUser",
            rule(everyone(), everything()),
        ),
    ];
    seeds.extend(
        schemas
            .into_iter()
            .map(|(name, level, precedence, distinguisher, rule)| {
                let mut spec = json!({
                    "matchingPrecedence": precedence, "priorityLevelConfiguration": { "name": level }, "rules": [rule],
                });
                if !distinguisher.is_empty() {
                    spec["distinguisherMethod"] = json!({ "type": distinguisher });
                }
                Seed::new(&kinds::flow_schema::FLOW_SCHEMA, object(name, spec))
            }),
    );
    seeds
}

fn limited((name, shares, lent, queues): &LimitedLevel) -> Seed {
    let response = match queues {
        None => json!({ "type": "Reject" }),
        Some((queues, hand)) => json!({
            "type": "Queue",
            "queuing": { "queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH_LIMIT },
        }),
    };
    let limited = json!({
        "nominalConcurrencyShares": shares, "lendablePercent": lent, "limitResponse": response,
    });
    level(name, json!({ "type": "Limited", "limited": limited }))
}

fn level(name: &str, spec: Value) -> Seed {
    let resource = &kinds::priority_level_configuration::PRIORITY_LEVEL_CONFIGURATION;
    Seed::new(resource, object(name, spec))
}

fn object(name: &str, spec: Value) -> Value {
    json!({ "metadata": { "name": name, "annotations": { AUTO_UPDATE: "true" } }, "spec": spec })
}

/// Whom a rule is about and what they do.
fn rule(subjects: Value, mut what: Value) -> Value {
    what["subjects"] = subjects;
    what
}

fn group(name: &str) -> Value {
    json!({ "kind": "Group", "group": { "name": name } })
}

fn user(name: &str) -> Value {
    json!({ "kind": "User", "user": { "name": name } })
}

fn system_accounts() -> Value {
    json!({ "kind": "ServiceAccount", "serviceAccount": { "namespace": "kube-system", "name": "*" } })
}

fn leaders() -> Value {
    json!([
        user("system:kube-controller-manager"),
        user("system:kube-scheduler"),
        system_accounts()
    ])
}

fn everything() -> Value {
    json!({
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
        }],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    })
}

fn probes() -> Value {
    json!({ "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"] }] })
}

fn leases(verbs: &[&str]) -> Value {
    json!({
        "resourceRules": [{
            "verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"],
        }],
    })
}

fn heartbeats() -> Value {
    let mut rules = leases(&["*"]);
    let nodes = json!({
        "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true,
        "namespaces": ["*"],
    });
    if let Some(rules) = rules["resourceRules"].as_array_mut() {
        rules.insert(0, nodes);
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_accepts_the_mandatory_objects_and_nothing_else_under_their_names() {
        let mandatory = seeds().into_iter().filter(|seed| {
            let name = seed.value["metadata"]["name"].as_str().unwrap_or_default();
            MANDATORY.contains(&name)
        });
        for mut seed in mandatory {
            let rules = seed.resource.rules;
            rules.default(&mut seed.value);
            assert_eq!(rules.validate(&seed.value), [], "{}", seed.value);
            seed.value["spec"]["rules"] = json!([]);
            assert_ne!(rules.validate(&seed.value), [], "{}", seed.value);
        }
    }
}
