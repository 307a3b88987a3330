//! StorageClass: how volumes of a kind are made.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::label_key;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value, repeats};

pub static STORAGE_CLASS: Resource =
    Resource::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses", "storageclass")
        .short(&["sc"])
        .returning_deleted()
        .with_rules(&StorageClassRules);

struct StorageClassRules;

impl Rules for StorageClassRules {
    fn default(&self, class: &mut Value) {
        class.fill_absent("reclaimPolicy", "Delete");
        class.fill_absent("volumeBindingMode", "Immediate");
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::default();
        validate_driver(class, "provisioner", &mut problems);
        validate_parameters(class, &mut problems);
        // Upstream lets an empty one pass.
        if class["reclaimPolicy"] != "" {
            problems.optional_one_of(class, &path, "reclaimPolicy", &["Delete", "Retain"]);
        }
        let modes = ["Immediate", "WaitForFirstConsumer"];
        problems.optional_one_of(class, &path, "volumeBindingMode", &modes);
        validate_topologies(class, &path.child("allowedTopologies"), &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            problems.immutable(new, old, &Path::default(), field);
        }
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, class: &Value, now: i64) -> Vec<Value> {
        let annotations = &class["metadata"]["annotations"];
        let is_default = DEFAULT_ANNOTATIONS
            .iter()
            .any(|annotation| annotations.text(annotation) == "true");
        vec![
            name_with_default(class, is_default),
            class.text("provisioner").into(),
            class.text("reclaimPolicy").into(),
            class.text("volumeBindingMode").into(),
            class.flag("allowVolumeExpansion").into(),
            print::age(class, now),
        ]
    }
}

/// The driver of a class, whose name is compared without regard to case.
pub(super) fn validate_driver(class: &Value, field: &str, problems: &mut Problems) {
    let path = Path::default();
    if problems.needs(class, &path, field) {
        let name = class.text(field).to_lowercase();
        problems.form(&path, field, name.as_str(), label_key(&name));
    }
}

/// How many parameters a class may have, and how large they may be together.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;

pub(super) fn validate_parameters(class: &Value, problems: &mut Problems) {
    let path = Path::new("parameters");
    if class.entries("parameters").count() > MAX_PARAMETERS {
        return problems.extend([FieldError::too_long(&path, MAX_PARAMETERS)]);
    }
    let mut bytes = 0;
    for (key, value) in class.entries("parameters") {
        if key.is_empty() {
            problems.invalid(&path, "", "", "field can not be empty.");
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_PARAMETER_BYTES {
        problems.extend([FieldError::too_long(&path, MAX_PARAMETER_BYTES)]);
    }
}

/// No two terms, no two keys of a term and no two values of a key are the same.
fn validate_topologies(class: &Value, path: &Path, problems: &mut Problems) {
    let terms = class.list("allowedTopologies");
    let repeated_terms = repeats(terms.iter().map(as_map));
    for (index, term) in terms.iter().enumerate() {
        let path = path.index(index).child("matchLabelExpressions");
        let expressions = term.list("matchLabelExpressions");
        // A term without expressions is the same as none, and that upstream holds to be there already.
        if expressions.is_empty() || repeated_terms[index] {
            problems.duplicate(&path, "", "");
        }
        let repeated = repeats(expressions.iter().map(|expression| expression.text("key")));
        for (index, expression) in expressions.iter().enumerate() {
            let path = path.index(index);
            validate_topology_values(expression, &path, problems);
            let key = expression.text("key");
            if repeated[index] {
                problems.duplicate(&path, "key", key);
            }
            problems.form(&path, "key", key, label_key(key));
        }
    }
}

fn as_map(term: &Value) -> BTreeMap<&str, BTreeSet<String>> {
    let values = |expression: &Value| expression.list("values").iter().map(ToString::to_string).collect();
    let expressions = term.list("matchLabelExpressions").iter();
    expressions
        .map(|expression| (expression.text("key"), values(expression)))
        .collect()
}

fn validate_topology_values(expression: &Value, path: &Path, problems: &mut Problems) {
    let values = expression.list("values");
    if values.is_empty() {
        problems.required(path, "values", "");
    }
    let repeated = repeats(values);
    for (index, value) in values.iter().enumerate() {
        if repeated[index] {
            problems.duplicate(&path.child("values").index(index), "", value.clone());
        }
    }
}

const DEFAULT_ANNOTATIONS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub(super) fn name_with_default(class: &Value, is_default: bool) -> Value {
    let name = class["metadata"].text("name");
    if is_default {
        format!("{name} (default)").into()
    } else {
        name.into()
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Provisioner", "Who makes the volumes."),
    print::text("ReclaimPolicy", "What happens to a volume when its claim goes."),
    print::text("VolumeBindingMode", "Whether volumes wait for their pods."),
    print::text("AllowVolumeExpansion", "Whether volumes can grow."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn topologies_say_nothing_twice() {
        let term = json!({"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]});
        let odd = json!({"matchLabelExpressions": [{"key": "zone", "values": ["b", "b"]}, {"key": "zone"}]});
        let class = json!({"provisioner": "p", "allowedTopologies": [term, term, odd, {}]});
        let found = StorageClassRules.validate(&class);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect![[r#"
            allowedTopologies[1].matchLabelExpressions: Duplicate value: ""
            allowedTopologies[2].matchLabelExpressions[0].values[1]: Duplicate value: "b"
            allowedTopologies[2].matchLabelExpressions[1].values: Required value
            allowedTopologies[2].matchLabelExpressions[1].key: Duplicate value: "zone"
            allowedTopologies[3].matchLabelExpressions: Duplicate value: """#]]
        .assert_eq(&found.join("\n"));
    }
}
