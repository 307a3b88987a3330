//! Deployments.

use api::Value;
use api::kinds::deployment::DEPLOYMENT;
use api::kinds::pod::POD;
use api::kinds::replica_set::REPLICA_SET;
use api::kinds::resource_quota::RESOURCE_QUOTA;

use super::workload;
use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{self, Look};
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &DEPLOYMENT,
    reads: &[&REPLICA_SET, &POD, &RESOURCE_QUOTA],
    state,
    checks: &[
        |facts, deployment| workload::is_not_observed(facts, deployment, "deployment"),
        is_paused,
        deadline_exceeded,
        |facts, deployment| workload::held_by_finalizers(facts, deployment, 30),
    ],
};

fn state(_: &Facts, deployment: &Value) -> State {
    let desired = workload::desired_replicas(deployment);
    let (updated, all) = (
        deployment.int("status.updatedReplicas"),
        deployment.int("status.replicas"),
    );
    let available = deployment.int("status.availableReplicas");
    match workload::replicas(desired, available, "available") {
        State::Healthy(_) if updated < desired => State::Unhealthy(format!(
            "{available} of {desired} replicas are available, {updated} updated."
        )),
        State::Healthy(_) if all > updated => State::Unhealthy(format!(
            "the rollout is not complete: {} of the previous revision still running.",
            look::count(usize::try_from(all - updated).unwrap_or_default(), "replica")
        )),
        state => state,
    }
}

fn is_paused(_: &Facts, deployment: &Value) -> Vec<Finding> {
    let is_behind = deployment.int("status.updatedReplicas") < workload::desired_replicas(deployment);
    if !deployment.yes("spec.paused") || !is_behind {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "paused",
            "spec.paused is true, so changes of the pod template are not rolled out.",
        )
        .next(format!(
            "Resume: kubectl -n {} rollout resume deployment/{}",
            deployment.namespace(),
            deployment.name()
        )),
    ]
}

/// Told only where nothing further down says more: the deadline is a consequence.
fn deadline_exceeded(facts: &Facts, deployment: &Value) -> Vec<Finding> {
    let late = deployment
        .condition_is("Progressing", "False")
        .filter(|condition| condition.str("reason") == "ProgressDeadlineExceeded");
    if late.is_none() {
        return Vec::new();
    }
    let seconds = deployment.int("spec.progressDeadlineSeconds");
    let newest = facts
        .owned_by(deployment)
        .into_iter()
        .map(|(_, set)| set)
        .max_by_key(|set| set.str("metadata.creationTimestamp").to_owned());
    let finding = Finding::waiting(
        "rollout-stuck",
        format!("The rollout exceeded its progress deadline of {seconds}s (spec.progressDeadlineSeconds)."),
    )
    .next(format!(
        "Fix the cause that keeps the new pods from becoming available, or roll back: kubectl -n {} rollout undo deployment/{}",
        deployment.namespace(),
        deployment.name()
    ));
    vec![match newest {
        Some(set) => finding.detail(format!(
            "The new ReplicaSet {} has {} of {} replicas ready.",
            set.name(),
            set.int("status.readyReplicas"),
            workload::desired_replicas(set)
        )),
        None => finding,
    }]
}
