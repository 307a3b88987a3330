//! Namespaces.

use api::Value;
use api::kinds::api_service::API_SERVICE;
use api::kinds::namespace::NAMESPACE;

use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::{Finding, Reference};
use crate::why::look::{self, Look};
use crate::why::table::Kind;

/// How long the deletion of a namespace may take.
const PATIENCE_SECONDS: u64 = 15;

pub static ROW: Kind = Kind {
    resource: &NAMESPACE,
    reads: &[&API_SERVICE],
    state,
    checks: &[discovery_fails, content_remains, deletion_fails, own_finalizers],
};

fn state(facts: &Facts, namespace: &Value) -> State {
    match namespace.str("status.phase") {
        "Terminating" => {
            let since = facts.seconds_since(namespace.moment("metadata.deletionTimestamp"));
            State::Unhealthy(format!("it has been Terminating for {}.", look::duration(since)))
        }
        _ => State::Healthy("it is Active.".to_owned()),
    }
}

fn is_stuck(facts: &Facts, namespace: &Value) -> bool {
    let since = facts.seconds_since(namespace.moment("metadata.deletionTimestamp"));
    namespace.is_deleting() && since >= PATIENCE_SECONDS
}

/// An API that does not answer: nobody knows what of it is in the namespace.
fn discovery_fails(facts: &Facts, namespace: &Value) -> Vec<Finding> {
    let kinds = [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
    ];
    let failed = kinds.iter().find_map(|kind| namespace.condition_is(kind, "True"));
    let Some(condition) = failed.filter(|_| namespace.is_deleting()) else {
        return Vec::new();
    };
    let mut services = facts.list(&API_SERVICE).iter();
    let down = services.find(|service| service.condition_is("Available", "False").is_some());
    let finding = Finding::broken(
        "discovery-failed",
        "Its deletion is blocked because API discovery fails: the resources of an unavailable API in this namespace cannot be listed.",
    )
    .detail(condition.str("message"));
    vec![match down {
        Some(service) => finding
            .next(format!("Fix the server behind APIService {}, or delete it if it is no longer needed: kubectl delete apiservice {}", service.name(), service.name()))
            .because_of(Reference::of(&API_SERVICE, service)),
        None => finding.next("Find the unavailable API: kubectl get apiservices"),
    }]
}

fn content_remains(facts: &Facts, namespace: &Value) -> Vec<Finding> {
    if !is_stuck(facts, namespace) {
        return Vec::new();
    }
    let remaining = namespace
        .condition_is("NamespaceContentRemaining", "True")
        .map(|condition| condition.str("message"));
    let finalizers = namespace
        .condition_is("NamespaceFinalizersRemaining", "True")
        .map(|condition| condition.str("message"));
    if remaining.is_none() && finalizers.is_none() {
        return Vec::new();
    }
    let finding = match finalizers.is_some() {
        true => Finding::broken(
            "content-finalizers",
            "Its deletion is blocked by objects with finalizers.",
        ),
        false => Finding::waiting(
            "content-remains",
            "Its deletion is waiting for objects in it to be removed.",
        ),
    };
    let finding = finding
        .details(remaining.map(str::to_owned))
        .details(finalizers.map(str::to_owned));
    let resources = remaining.map(resources_of).unwrap_or_default();
    let finding = match resources.is_empty() {
        true => finding,
        false => finding.next(format!(
            "List them: kubectl -n {} get {}",
            namespace.name(),
            resources.join(",")
        )),
    };
    vec![match finalizers {
        Some(_) => finding
            .next("Check that the controller that owns the finalizer is running; it must remove the finalizer.")
            .next("If that controller was uninstalled, remove the finalizer from these objects with kubectl edit."),
        None => finding,
    }]
}

/// `Some resources are remaining: widgets.example.com has 2 resource instances`
fn resources_of(message: &str) -> Vec<&str> {
    let Some((_, list)) = message.split_once("remaining: ") else {
        return Vec::new();
    };
    list.split(", ")
        .filter_map(|part| part.split(" has ").next())
        // Those of the core group end in a dot.
        .map(|resource| resource.trim_end_matches('.'))
        .collect()
}

fn deletion_fails(_: &Facts, namespace: &Value) -> Vec<Finding> {
    let failed = namespace.condition_is("NamespaceDeletionContentFailure", "True");
    let Some(condition) = failed.filter(|_| namespace.is_deleting()) else {
        return Vec::new();
    };
    vec![
        Finding::broken(
            "content-deletion-failed",
            "Its deletion is blocked because some of its objects cannot be deleted.",
        )
        .detail(condition.str("message"))
        .next("Fix the error in the message; often an admission webhook rejects the deletion."),
    ]
}

/// Finalizers of the namespace itself, beside the one of the namespace controller.
fn own_finalizers(facts: &Facts, namespace: &Value) -> Vec<Finding> {
    if !is_stuck(facts, namespace) {
        return Vec::new();
    }
    let mut finalizers = namespace.texts("spec.finalizers");
    finalizers.retain(|finalizer| *finalizer != "kubernetes");
    finalizers.extend(namespace.texts("metadata.finalizers"));
    match finalizers.is_empty() {
        true => Vec::new(),
        false => vec![
            Finding::broken(
                "finalizers",
                format!(
                    "Its deletion is blocked by its own finalizers: {}.",
                    finalizers.join(", ")
                ),
            )
            .next("Check that the controller that owns the finalizer is running; it must remove the finalizer."),
        ],
    }
}
