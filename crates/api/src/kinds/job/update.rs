//! What of a job may still be changed.

use crate::{Fields, Path, Problems, Value};

/// An indexed job may change its size as a whole.
pub fn validate_completions(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    if new.text("completionMode") != "Indexed" {
        return problems.immutable(new, old, path, "completions");
    }
    let changed = new.has("completions") && new["completions"] != old["completions"];
    if changed && new["completions"] != new["parallelism"] {
        let detail = "can only be modified in tandem with spec.parallelism";
        problems.invalid(path, "completions", new["completions"].clone(), detail);
    }
}

/// A suspended job whose pods are gone may still be told where its next pods go and what they need.
pub fn validate_template(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    let conditions = old["status"].list("conditions").iter();
    let mut suspended = conditions.filter(|condition| condition.text("type") == "Suspended");
    let has_stopped = !old["status"].has("startTime") || suspended.any(|condition| condition.text("status") == "True");
    let is_idle = old_spec.flag("suspend") && has_stopped && old["status"].number("active") == 0;
    if !is_idle {
        return problems.immutable(new_spec, old_spec, path, "template");
    }
    let mut allowed = old_spec["template"].clone();
    let template = &new_spec["template"];
    for field in ["annotations", "labels"] {
        copy(template, &mut allowed, &["metadata", field]);
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy(template, &mut allowed, &["spec", field]);
    }
    copy(template, &mut allowed, &["spec", "affinity", "nodeAffinity"]);
    for list in ["containers", "initContainers"] {
        let containers = template["spec"].list(list).to_vec();
        for (container, old) in containers.iter().zip(allowed.ensure("spec").list_mut(list)) {
            if container["name"] == old["name"] {
                copy(container, old, &["resources"]);
            }
        }
    }
    if without_empty(template) != without_empty(&allowed) {
        let detail = "field is immutable";
        problems.invalid(&path.child("template"), "spec", template["spec"].clone(), detail);
    }
}

/// Makes a field of `to` what it is in `from`.
fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    match path {
        [] => {}
        [field] if from[*field].is_null() => {
            to.remove(field);
        }
        [field] => to.set(field, from[*field].clone()),
        [field, rest @ ..] => {
            if from.has(field) || to.has(field) {
                copy(&from[*field], to.ensure(field), rest);
            }
        }
    }
}

/// Structs that were made only to be compared do not count.
fn without_empty(template: &Value) -> Value {
    let mut template = template.clone();
    let is_empty = |value: &Value| value.as_object().is_some_and(|fields| fields.is_empty());
    if is_empty(&template["spec"]["affinity"]) {
        template.ensure("spec").remove("affinity");
    }
    if is_empty(&template["metadata"]) {
        template.remove("metadata");
    }
    template
}
