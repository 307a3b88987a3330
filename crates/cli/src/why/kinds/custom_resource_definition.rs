//! CustomResourceDefinitions.

use api::Value;
use api::kinds::custom_resource_definition::CUSTOM_RESOURCE_DEFINITION;

use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{self, Look};
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &CUSTOM_RESOURCE_DEFINITION,
    reads: &[],
    state,
    checks: &[
        names_are_taken,
        schema_is_not_structural,
        is_terminating,
        conversion_fails,
    ],
};

fn state(_: &Facts, definition: &Value) -> State {
    if definition.is_deleting() {
        return State::Unhealthy("it is being deleted.".to_owned());
    }
    match definition.condition_is("Established", "True") {
        Some(_) => State::Healthy("it is Established.".to_owned()),
        None => State::Unhealthy("it is not Established, so its resource is not served.".to_owned()),
    }
}

fn names_are_taken(_: &Facts, definition: &Value) -> Vec<Finding> {
    let Some(condition) = definition.condition_is("NamesAccepted", "False") else {
        return Vec::new();
    };
    vec![
        Finding::broken(
            "names-taken",
            format!("Its names conflict with another resource: {}", condition.str("message")),
        )
        .next("Change spec.names (plural, singular, kind, shortNames), or delete the CustomResourceDefinition that already uses them."),
    ]
}

fn schema_is_not_structural(_: &Facts, definition: &Value) -> Vec<Finding> {
    let Some(condition) = definition.condition_is("NonStructuralSchema", "True") else {
        return Vec::new();
    };
    vec![
        Finding::broken(
            "schema-not-structural",
            "Its schema is not structural, so fields are neither pruned nor defaulted.",
        )
        .detail(condition.str("message"))
        .next("Set a type for every field in spec.versions[].schema.openAPIV3Schema."),
    ]
}

fn is_terminating(facts: &Facts, definition: &Value) -> Vec<Finding> {
    let since = facts.seconds_since(definition.moment("metadata.deletionTimestamp"));
    let Some(condition) = definition
        .condition_is("Terminating", "True")
        .filter(|_| definition.is_deleting() && since >= 10)
    else {
        return Vec::new();
    };
    let plural = definition.str("spec.names.plural");
    vec![
        Finding::broken(
            "definition-terminating",
            format!(
                "It was deleted {} ago, but custom resources of this kind still exist; finalizers may be blocking their deletion.",
                look::duration(since)
            ),
        )
        .detail(condition.str("message"))
        .next(format!(
            "List them: kubectl get {plural}.{} -A -o yaml",
            definition.str("spec.group")
        )),
    ]
}

/// What tells that objects of several versions cannot be read.
fn conversion_fails(_: &Facts, definition: &Value) -> Vec<Finding> {
    let is_webhook = definition.str("spec.conversion.strategy") == "Webhook";
    let stored = definition.texts("status.storedVersions");
    let versions: Vec<&str> = definition
        .items("spec.versions")
        .iter()
        .map(|version| version.str("name"))
        .collect();
    let lost: Vec<&str> = stored
        .into_iter()
        .filter(|version| !versions.contains(version))
        .collect();
    if lost.is_empty() || is_webhook {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "stored-version-missing",
            format!(
                "status.storedVersions contains {}, which spec.versions no longer has.",
                lost.join(", ")
            ),
        )
        .next(
            "Add the version again with served: false, rewrite the objects in the storage version, then remove it from status.storedVersions.",
        ),
    ]
}
