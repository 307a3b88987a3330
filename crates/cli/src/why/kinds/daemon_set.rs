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
        (0, _) if facts.list(&NODE).is_empty() => State::Well("there are no nodes for it.".to_owned()),
        (0, _) => State::Unwell("no node is chosen for it.".to_owned()),
        (_, false) => State::Unwell(format!("it is ready on {ready} of {desired} nodes.")),
        (_, true) if updated < desired => State::Unwell(format!("{updated} of {desired} nodes have the new template.")),
        _ => State::Well(format!("it is ready on {ready} of {desired} nodes.")),
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
                "None of {} matches its nodeSelector {}.",
                look::count(nodes, "node"),
                look::labels(&selector)
            ),
        ),
        (true, true) => Finding::broken(
            "no-node-matches",
            format!("None of {} matches its nodeAffinity.", look::count(nodes, "node")),
        ),
        (true, false) => Finding::broken(
            "no-node-matches",
            format!(
                "None of {} may run it: they have taints that its pods do not tolerate.",
                look::count(nodes, "node")
            ),
        ),
    };
    vec![finding.next("Label the nodes (kubectl label node NODE KEY=VALUE), or change the pod template.")]
}

fn waits_for_deletion(_: &Facts, set: &Value) -> Vec<Finding> {
    let is_behind = set.int("status.updatedNumberScheduled") < set.int("status.desiredNumberScheduled");
    if set.str("spec.updateStrategy.type") != "OnDelete" || !is_behind {
        return Vec::new();
    }
    vec![
        Finding::waiting(
            "on-delete",
            "Its updateStrategy is OnDelete: pods get the new template when somebody deletes them.",
        )
        .next("Delete its pods one after the other."),
    ]
}
