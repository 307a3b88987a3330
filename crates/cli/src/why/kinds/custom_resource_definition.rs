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
        return State::Unwell("it is being deleted.".to_owned());
    }
    match definition.condition_is("Established", "True") {
        Some(_) => State::Well("it is established.".to_owned()),
        None => State::Unwell("it is not established, so its resource is not served.".to_owned()),
    }
}

fn names_are_taken(_: &Facts, definition: &Value) -> Vec<Finding> {
    let Some(condition) = definition.condition_is("NamesAccepted", "False") else {
        return Vec::new();
    };
    vec![
        Finding::broken(
            "names-taken",
            format!("Its names are not accepted: {}", condition.str("message")),
        )
        .next("Choose other names (plural, singular, kind, short names), or delete the definition that has them."),
    ]
}

fn schema_is_not_structural(_: &Facts, definition: &Value) -> Vec<Finding> {
    let Some(condition) = definition.condition_is("NonStructuralSchema", "True") else {
        return Vec::new();
    };
    vec![
        Finding::broken(
            "schema-not-structural",
            "Its schema is not structural, so nothing is pruned or defaulted.",
        )
        .detail(condition.str("message"))
        .next("Give every field a type in spec.versions[].schema.openAPIV3Schema."),
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
                "It was deleted {} ago, and objects of it are not gone yet; finalizers may hold them.",
                look::duration(since)
            ),
        )
        .detail(condition.str("message"))
        .next(format!(
            "See them: kubectl get {plural}.{} -A -o yaml",
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
                "Objects may be stored in {}, which it does not have any more.",
                lost.join(", ")
            ),
        )
        .next(
            "Bring the version back (served: false), rewrite the objects, then remove it from status.storedVersions.",
        ),
    ]
}
