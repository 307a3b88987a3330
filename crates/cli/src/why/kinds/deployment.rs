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
use crate::why::look::Look;
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
    let wished = workload::wished(deployment);
    let (updated, all) = (
        deployment.int("status.updatedReplicas"),
        deployment.int("status.replicas"),
    );
    let available = deployment.int("status.availableReplicas");
    match workload::replicas(wished, available, "available") {
        State::Well(_) if updated < wished => State::Unwell(format!(
            "{available} of {wished} replicas are available, {updated} of them of the new template."
        )),
        State::Well(_) if all > updated => State::Unwell(format!(
            "{} replicas of the old template are still there.",
            all - updated
        )),
        state => state,
    }
}

fn is_paused(_: &Facts, deployment: &Value) -> Vec<Finding> {
    let is_behind = deployment.int("status.updatedReplicas") < workload::wished(deployment);
    if !deployment.yes("spec.paused") || !is_behind {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "paused",
            "Its rollout is paused (spec.paused), so the new template is not rolled out.",
        )
        .next(format!(
            "Go on: kubectl -n {} rollout resume deployment/{}",
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
        format!("Its rollout has made no progress for {seconds}s (spec.progressDeadlineSeconds)."),
    )
    .next(format!(
        "Mend what keeps its pods from being available, or go back: kubectl -n {} rollout undo deployment/{}",
        deployment.namespace(),
        deployment.name()
    ));
    vec![match newest {
        Some(set) => finding.detail(format!(
            "The new ReplicaSet {} has {} of {} replicas ready.",
            set.name(),
            set.int("status.readyReplicas"),
            workload::wished(set)
        )),
        None => finding,
    }]
}
