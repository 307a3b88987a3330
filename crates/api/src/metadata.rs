//! The checks of `metadata` that hold for every kind.

use std::collections::HashSet;

use crate::names::{dns1123_label, label_key, label_value};
use crate::{FieldError, Fields, MAX_WHOLE, Path, Resource, Value};

/// All annotations of an object together, keys and values.
const ANNOTATIONS_BYTES: usize = 256 * 1024;
/// The longest name of a field manager.
const FIELD_MANAGER_BYTES: usize = 128;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What is wrong with the metadata of a new object. Its name has already been generated where it had to be.
pub fn validate_metadata(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let path = Path::new("metadata");
    let mut problems = Vec::new();
    let prefix = metadata.text("generateName");
    if !prefix.is_empty() {
        let found = resource.rules.validate_name(prefix, true).into_iter();
        problems.extend(found.map(|problem| FieldError::invalid(&path.child("generateName"), prefix, problem)));
    }
    match metadata.text("name") {
        "" => problems.push(FieldError::required(
            &path.child("name"),
            "name or generateName is required",
        )),
        name => {
            let found = resource.rules.validate_name(name, false).into_iter();
            problems.extend(found.map(|problem| FieldError::invalid(&path.child("name"), name, problem)));
        }
    }
    problems.extend(validate_namespace(resource, metadata, &path));
    if metadata.number("generation") < 0 {
        let detail = "must be greater than or equal to 0";
        problems.push(FieldError::invalid(
            &path.child("generation"),
            metadata["generation"].clone(),
            detail,
        ));
    }
    problems.extend(validate_common(metadata, &path));
    problems.extend(validate_finalizers(metadata, &path.child("finalizers")));
    problems.extend(validate_qualified_finalizers(
        resource,
        metadata,
        &path.child("finalizers"),
    ));
    problems
}

/// What is wrong with a change of metadata.
pub fn validate_metadata_update(_resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    let path = Path::new("metadata");
    let mut problems = Vec::new();
    if old.has("deletionTimestamp") {
        problems.extend(validate_no_new_finalizers(new, old, &path.child("finalizers")));
    }
    if new.number("generation") < old.number("generation") {
        let value = new["generation"].clone();
        problems.push(FieldError::invalid(
            &path.child("generation"),
            value,
            "must not be decremented",
        ));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        if new[field] != old[field] {
            problems.push(FieldError::invalid(
                &path.child(field),
                new[field].clone(),
                "field is immutable",
            ));
        }
    }
    problems.extend(validate_common(new, &path));
    problems
}

/// What is wrong with a map of labels.
pub fn validate_labels(labels: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        problems.extend(
            label_key(key)
                .into_iter()
                .map(|problem| FieldError::invalid(path, key.as_str(), problem)),
        );
        problems.extend(
            label_value(value)
                .into_iter()
                .map(|problem| FieldError::invalid(path, value, problem)),
        );
    }
    problems
}

/// What is wrong with a `LabelSelector`; one that is absent is fine.
pub fn validate_label_selector(selector: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = validate_labels(&selector["matchLabels"], &path.child("matchLabels"));
    for (index, expression) in selector.list("matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = expression.list("values");
        match expression.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                problems.push(FieldError::required(&path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                problems.push(FieldError::forbidden(&path.child("values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            operator => {
                let detail = "not a valid selector operator";
                problems.push(FieldError::invalid(&path.child("operator"), operator, detail));
            }
        }
        let key = expression.text("key");
        let of_key = label_key(key).into_iter();
        problems.extend(of_key.map(|problem| FieldError::invalid(&path.child("key"), key, problem)));
        for (index, value) in values.iter().enumerate() {
            let path = path.child("values").index(index);
            let value = value.as_str().unwrap_or_default();
            problems.extend(
                label_value(value)
                    .into_iter()
                    .map(|problem| FieldError::invalid(&path, value, problem)),
            );
        }
    }
    problems
}

fn validate_namespace(resource: &Resource, metadata: &Value, path: &Path) -> Vec<FieldError> {
    let path = path.child("namespace");
    match (resource.namespaced, metadata.text("namespace")) {
        (true, "") => vec![FieldError::required(&path, "")],
        (true, namespace) => {
            let found = dns1123_label(namespace, false).into_iter();
            found
                .map(|problem| FieldError::invalid(&path, namespace, problem))
                .collect()
        }
        (false, "") => Vec::new(),
        (false, _) => vec![FieldError::forbidden(&path, "not allowed on this type")],
    }
}

/// The checks that a create and an update share.
fn validate_common(metadata: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = validate_labels(&metadata["labels"], &path.child("labels"));
    problems.extend(validate_annotations(
        &metadata["annotations"],
        &path.child("annotations"),
    ));
    problems.extend(validate_owner_references(metadata, &path.child("ownerReferences")));
    problems.extend(validate_managed_fields(metadata, &path.child("managedFields")));
    problems
}

/// The metadata in a template: labels and annotations go to the objects that are made from it, and nothing else.
pub(crate) fn validate_template_metadata(metadata: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = validate_annotations(&metadata["annotations"], &path.child("annotations"));
    problems.extend(validate_labels(&metadata["labels"], &path.child("labels")));
    let fields = metadata.as_object().into_iter().flatten();
    let others =
        fields.filter(|(field, value)| !value.is_null() && !matches!(field.as_str(), "labels" | "annotations"));
    problems.extend(others.map(|(field, _)| FieldError::forbidden(&path.child(field), "cannot be set")));
    problems
}

pub(crate) fn validate_annotations(annotations: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        let found = label_key(&key.to_lowercase()).into_iter();
        problems.extend(found.map(|problem| FieldError::invalid(path, key.as_str(), problem)));
    }
    if bytes > ANNOTATIONS_BYTES {
        problems.push(FieldError::too_long(path, ANNOTATIONS_BYTES));
    }
    problems
}

fn validate_owner_references(metadata: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let mut controller: Option<String> = None;
    let mut told = 0;
    for owner in metadata.list("ownerReferences") {
        let value = owner.text("apiVersion");
        // More than a group and a version is no version at all.
        let version = match value.split_once('/') {
            Some((_, version)) if version.contains('/') => "",
            Some((_, version)) => version,
            None => value,
        };
        if version.is_empty() {
            problems.push(FieldError::invalid(
                &path.child("apiVersion"),
                value,
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if owner.text(field).is_empty() {
                problems.push(FieldError::invalid(&path.child(field), "", "must not be empty"));
            }
        }
        if owner.text("apiVersion") == "v1" && owner.text("kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            problems.push(FieldError::invalid(path, owner.clone(), detail));
        }
        if owner.flag("controller") {
            let this = format!("{}/{}", owner.text("kind"), owner.text("name"));
            match &controller {
                None => controller = Some(this),
                Some(first) if told < MAX_WHOLE => {
                    told += 1;
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    );
                    problems.push(FieldError::invalid(path, metadata["ownerReferences"].clone(), detail));
                }
                Some(_) => {}
            }
        }
    }
    problems
}

fn validate_finalizers(metadata: &Value, path: &Path) -> Vec<FieldError> {
    let finalizers: Vec<&str> = metadata.list("finalizers").iter().filter_map(Value::as_str).collect();
    let mut problems = Vec::new();
    for finalizer in &finalizers {
        let found = label_key(finalizer).into_iter();
        problems.extend(found.map(|problem| FieldError::invalid(path, *finalizer, problem)));
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        problems.push(FieldError::invalid(path, metadata["finalizers"].clone(), detail));
    }
    problems
}

/// Finalizers of built-in kinds have a domain, but for the few that came before that rule.
fn validate_qualified_finalizers(resource: &Resource, metadata: &Value, path: &Path) -> Vec<FieldError> {
    if metadata.list("finalizers").is_empty() {
        return Vec::new();
    }
    let is_free = resource.custom || resource.allows_unqualified_finalizers;
    let standard = ["kubernetes", ORPHAN, FOREGROUND];
    let finalizers = metadata.list("finalizers").iter().filter_map(Value::as_str).enumerate();
    let unqualified = finalizers.filter(|(_, name)| !is_free && !name.contains('/') && !standard.contains(name));
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    unqualified
        .map(|(index, name)| FieldError::invalid(&path.index(index), name, detail))
        .collect()
}

/// An object on its way out can only lose finalizers.
fn validate_no_new_finalizers(new: &Value, old: &Value, path: &Path) -> Vec<FieldError> {
    let before: HashSet<&Value> = old.list("finalizers").iter().collect();
    let added = new
        .list("finalizers")
        .iter()
        .filter(|finalizer| !before.contains(finalizer));
    let mut added: Vec<String> = added.map(Value::to_string).collect();
    if added.is_empty() {
        return Vec::new();
    }
    added.sort_unstable();
    added.dedup();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    vec![FieldError::forbidden(path, detail)]
}

fn validate_managed_fields(metadata: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = Vec::new();
    for (index, entry) in metadata.list("managedFields").iter().enumerate() {
        let path = path.index(index);
        if !matches!(entry.text("operation"), "Apply" | "Update") {
            let value = entry.text("operation");
            problems.push(FieldError::invalid(
                &path.child("operation"),
                value,
                "must be `Apply` or `Update`",
            ));
        }
        if !matches!(entry.text("fieldsType"), "" | "FieldsV1") {
            let value = entry.text("fieldsType");
            problems.push(FieldError::invalid(
                &path.child("fieldsType"),
                value,
                "must be `FieldsV1`",
            ));
        }
        if entry.text("manager").len() > FIELD_MANAGER_BYTES {
            problems.push(FieldError::too_long(&path.child("manager"), FIELD_MANAGER_BYTES));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::kinds::config_map::CONFIG_MAP;
    use crate::kinds::node::NODE;

    fn check(resource: &Resource, metadata: Value, expect: Expect) {
        let problems = validate_metadata(resource, &json!({"metadata": metadata}));
        expect.assert_eq(
            &problems
                .iter()
                .map(FieldError::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        );
    }

    #[test]
    fn an_object_needs_a_name_and_the_namespace_its_kind_has() {
        check(
            &CONFIG_MAP,
            json!({}),
            expect![[r#"
                metadata.name: Required value: name or generateName is required
                metadata.namespace: Required value"#]],
        );
        check(
            &NODE,
            json!({"name": "one", "namespace": "default"}),
            expect!["metadata.namespace: Forbidden: not allowed on this type"],
        );
        check(
            &CONFIG_MAP,
            json!({"name": "a.b", "generateName": "a-", "namespace": "default"}),
            expect![""],
        );
    }

    #[test]
    fn labels_owners_and_finalizers_have_forms() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": true});
        check(
            &NODE,
            json!({
                "name": "one",
                "labels": {"a/b/c": "x y"},
                "ownerReferences": [owner, owner, {}],
                "finalizers": ["orphan", "foregroundDeletion"],
            }),
            expect![[r#"
                metadata.labels: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
                metadata.labels: Invalid value: "x y": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
                metadata.ownerReferences: Invalid value: [{"apiVersion":"apps/v1","controller":true,"kind":"ReplicaSet","name":"r","uid":"1"},{"apiVersion":"apps/v1","controller":true,"kind":"ReplicaSet","name":"r","uid":"1"},{}]: Only one reference can have Controller set to true. Found "true" in references for ReplicaSet/r and ReplicaSet/r
                metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty
                metadata.ownerReferences.kind: Invalid value: "": must not be empty
                metadata.ownerReferences.name: Invalid value: "": must not be empty
                metadata.ownerReferences.uid: Invalid value: "": must not be empty
                metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#]],
        );
    }

    #[test]
    fn an_owner_has_a_version_with_at_most_one_slash() {
        for wrong in ["a/b/c", "a/", "/", "a//", "apps/v1/x"] {
            let owner = json!({"apiVersion": wrong, "kind": "ReplicaSet", "name": "r", "uid": "1"});
            let metadata = json!({"name": "one", "ownerReferences": [owner]});
            let problems = validate_metadata(&NODE, &json!({ "metadata": metadata }));
            let problems: Vec<String> = problems.iter().map(FieldError::to_string).collect();
            let expected =
                format!("metadata.ownerReferences.apiVersion: Invalid value: {wrong:?}: version must not be empty");
            assert_eq!(problems, [expected]);
        }
    }

    #[test]
    fn identity_is_immutable_and_a_dying_object_gets_no_new_finalizers() {
        let old = json!({"metadata": {"name": "one", "uid": "1", "deletionTimestamp": "t", "finalizers": ["a"]}});
        let new = json!({"metadata": {"name": "one", "uid": "2", "deletionTimestamp": "t", "finalizers": ["a", "b"]}});
        let problems = validate_metadata_update(&NODE, &new, &old);
        expect![[r#"
            metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"b"}
            metadata.uid: Invalid value: "2": field is immutable"#]]
        .assert_eq(&problems.iter().map(FieldError::to_string).collect::<Vec<_>>().join("\n"));
    }
}
