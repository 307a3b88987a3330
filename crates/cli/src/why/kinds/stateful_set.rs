//! StatefulSets.

use api::Value;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::resource_quota::RESOURCE_QUOTA;
use api::kinds::stateful_set::STATEFUL_SET;

use super::workload;
use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::{Finding, Reference};
use crate::why::look::Look;
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &STATEFUL_SET,
    reads: &[&POD, &PERSISTENT_VOLUME_CLAIM, &RESOURCE_QUOTA],
    state,
    checks: &[
        |facts, set| {
            let is_short = set.int("status.replicas") < workload::desired_replicas(set);
            workload::refused(facts, &STATEFUL_SET, set, is_short)
        },
        waits_in_order,
        update_is_held,
        |facts, set| workload::is_not_observed(facts, set, "statefulset"),
        |facts, set| workload::held_by_finalizers(facts, set, 30),
    ],
};

fn state(_: &Facts, set: &Value) -> State {
    let desired = workload::desired_replicas(set);
    let updated = set.int("status.updatedReplicas");
    let is_rolling = set.str("status.updateRevision") != set.str("status.currentRevision");
    match workload::replicas(desired, set.int("status.readyReplicas"), "ready") {
        State::Healthy(_) if is_rolling && updated < desired => {
            State::Unhealthy(format!("{updated} of {desired} replicas are updated."))
        }
        state => state,
    }
}

/// One at a time: the first that is not Ready holds the ones after it.
fn waits_in_order(facts: &Facts, set: &Value) -> Vec<Finding> {
    let desired = workload::desired_replicas(set);
    let missing = desired - set.int("status.replicas");
    if set.str("spec.podManagementPolicy") == "Parallel" || missing <= 0 {
        return Vec::new();
    }
    let mut pods = facts.owned_by(set).into_iter().map(|(_, pod)| pod);
    let Some(first) = pods.find(|pod| pod.condition_is("Ready", "True").is_none()) else {
        return Vec::new();
    };
    vec![
        Finding::waiting(
            "ordered-start",
            format!(
                "{missing} more pods are created one at a time after {} is Ready (podManagementPolicy OrderedReady).",
                first.name()
            ),
        )
        .because_of(Reference::of(&POD, first)),
    ]
}

fn update_is_held(_: &Facts, set: &Value) -> Vec<Finding> {
    let is_behind = set.int("status.updatedReplicas") < workload::desired_replicas(set)
        && set.str("status.updateRevision") != set.str("status.currentRevision");
    if !is_behind {
        return Vec::new();
    }
    if set.str("spec.updateStrategy.type") == "OnDelete" {
        return vec![
            Finding::waiting(
                "on-delete",
                "updateStrategy is OnDelete: a pod is only updated after it has been deleted.",
            )
            .next(format!(
                "Delete its pods one at a time: kubectl -n {} delete pod {}-N",
                set.namespace(),
                set.name()
            )),
        ];
    }
    match set.int("spec.updateStrategy.rollingUpdate.partition") {
        0 => Vec::new(),
        partition => vec![
            Finding::waiting(
                "partition",
                format!("spec.updateStrategy.rollingUpdate.partition is {partition}: pods with a lower ordinal are not updated."),
            )
            .next("Lower the partition to update more pods."),
        ],
    }
}
