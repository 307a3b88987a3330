//! DaemonSets.

use api::Value;
use api::kinds::daemon_set::DAEMON_SET;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::kinds::resource_quota::RESOURCE_QUOTA;

use super::workload;
use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{self, Look};
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &DAEMON_SET,
    reads: &[&POD, &NODE, &RESOURCE_QUOTA],
    state,
    checks: &[
        no_node_wanted,
        |facts, set| {
            let is_short = set.int("status.currentNumberScheduled") < set.int("status.desiredNumberScheduled");
            workload::refused(facts, &DAEMON_SET, set, is_short)
        },
        waits_for_deletion,
        |facts, set| workload::is_not_observed(facts, set, "daemonset"),
        |facts, set| workload::held_by_finalizers(facts, set, 30),
    ],
};

fn state(facts: &Facts, set: &Value) -> State {
    let desired = set.int("status.desiredNumberScheduled");
    let ready = set.int("status.numberReady");
    let updated = set.int("status.updatedNumberScheduled");
    match (desired, ready >= desired) {
        (0, _) if facts.list(&NODE).is_empty() => State::Healthy("the cluster has no nodes.".to_owned()),
        (0, _) => State::Unhealthy("no node matches it.".to_owned()),
        (_, false) => State::Unhealthy(format!("it is ready on {ready} of {desired} nodes.")),
        (_, true) if updated < desired => {
            State::Unhealthy(format!("{updated} of {desired} nodes run the updated template."))
        }
        _ => State::Healthy(format!("it is ready on {ready} of {desired} nodes.")),
    }
}

fn no_node_wanted(facts: &Facts, set: &Value) -> Vec<Finding> {
    let is_observed = set.int("status.observedGeneration") > 0;
    let nodes = facts.list(&NODE).len();
    if set.int("status.desiredNumberScheduled") != 0 || nodes == 0 || !is_observed {
        return Vec::new();
    }
    let selector = set.pairs("spec.template.spec.nodeSelector");
    let has_affinity = !set.at("spec.template.spec.affinity.nodeAffinity").is_null();
    let finding = match (selector.is_empty(), has_affinity) {
        (false, _) => Finding::broken(
            "no-node-matches",
            format!(
                "Its nodeSelector {1} matches none of {0}.",
                look::count(nodes, "node"),
                look::labels(&selector)
            ),
        ),
        (true, true) => Finding::broken(
            "no-node-matches",
            format!("Its nodeAffinity matches none of {}.", look::count(nodes, "node")),
        ),
        (true, false) => Finding::broken(
            "no-node-matches",
            format!(
                "Its pods do not tolerate the taints of any of {}.",
                look::count(nodes, "node")
            ),
        ),
    };
    vec![finding.next("Label the nodes (kubectl label node NODE KEY=VALUE), or change nodeSelector, affinity or tolerations in the pod template.")]
}

fn waits_for_deletion(_: &Facts, set: &Value) -> Vec<Finding> {
    let is_behind = set.int("status.updatedNumberScheduled") < set.int("status.desiredNumberScheduled");
    if set.str("spec.updateStrategy.type") != "OnDelete" || !is_behind {
        return Vec::new();
    }
    vec![
        Finding::waiting(
            "on-delete",
            "updateStrategy is OnDelete: a pod is only updated after it has been deleted.",
        )
        .next("Delete its pods one at a time."),
    ]
}
