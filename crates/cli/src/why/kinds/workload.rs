//! What all workloads have in common.

use api::{Resource, Value};

use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{self, Look};
use crate::why::{State, refusal};

/// How long a controller may take to see a change.
const PATIENCE_SECONDS: u64 = 15;

/// Whether a workload has its desired number of replicas.
pub fn replicas(desired: i64, ready: i64, word: &str) -> State {
    match ready >= desired {
        true if desired == 0 => State::Healthy("it is scaled to 0.".to_owned()),
        true => State::Healthy(format!("{ready} of {desired} replicas are {word}.")),
        false => State::Unhealthy(format!("{ready} of {desired} replicas are {word}.")),
    }
}

/// The number of replicas in a spec, 1 by default.
pub fn desired_replicas(object: &Value) -> i64 {
    object.at("spec.replicas").as_i64().unwrap_or(1)
}

/// A controller that has not seen the last change of the spec.
pub fn is_not_observed(facts: &Facts, object: &Value, controller: &str) -> Vec<Finding> {
    let (generation, observed) = (
        object.int("metadata.generation"),
        object.int("status.observedGeneration"),
    );
    let age = facts.age(object);
    if observed >= generation || age < PATIENCE_SECONDS || object.is_deleting() {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "not-observed",
            format!("Its controller has not observed the latest change (generation {generation}, observedGeneration {observed})."),
        )
        .next(format!(
            "Check that kube-controller-manager is running ({controller} controller): kubectl -n kube-system get lease kube-controller-manager"
        )),
    ]
}

/// What the API server refused, by the newest event of that kind. An event that is older than what was made since is past.
pub fn refused(facts: &Facts, resource: &Resource, object: &Value, is_short: bool) -> Vec<Finding> {
    if !is_short {
        return Vec::new();
    }
    let told = object
        .condition_is("ReplicaFailure", "True")
        .map(|condition| condition.str("message"));
    let event = || {
        facts
            .event(resource, object, "FailedCreate")
            .map(|event| event.str("message"))
    };
    let Some(message) = told.or_else(event) else {
        return Vec::new();
    };
    vec![refusal::explain(message, object.namespace())]
}

/// Something that was deleted and is held by finalizers.
pub fn held_by_finalizers(facts: &Facts, object: &Value, patience_seconds: u64) -> Vec<Finding> {
    let since = facts.seconds_since(object.moment("metadata.deletionTimestamp"));
    let finalizers = object.texts("metadata.finalizers").join(", ");
    if !object.is_deleting() || finalizers.is_empty() || since < patience_seconds {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "finalizers",
            format!(
                "It was deleted {} ago, but is blocked by finalizers: {finalizers}.",
                look::duration(since)
            ),
        )
        .next(format!(
            "Check that the controller that owns {finalizers} is running; it must remove the finalizer."
        ))
        .next("If that controller was uninstalled, remove the finalizer with kubectl edit."),
    ]
}
