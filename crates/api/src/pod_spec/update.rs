//! What may change in a pod that exists: nearly nothing.

use std::collections::HashSet;

use super::validate::validate_tolerations;
use crate::{Fields, Path, Problems, Value};

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
     `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
     to 1 if it was previously negative)";

pub fn validate_pod_update(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    for list in ["containers", "initContainers"] {
        if new.list(list).len() != old.list(list).len() {
            return problems.forbidden(path, list, "pod updates may not add or remove containers");
        }
    }
    if !validate_deadline(new, old, path, problems) {
        return;
    }
    validate_added_tolerations(new, old, path, problems);
    validate_removed_gates(new, old, path, problems);
    if !old.list("schedulingGates").is_empty() {
        validate_gated(new, old, path, problems);
    }
    if with_allowed_changes(new, old) != *old {
        let changed = changed_fields(new, old).join(", ");
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n(changed: {changed})");
        problems.forbidden(path, "", detail);
    }
}

/// A deadline can be set and come closer. Returns whether to go on.
fn validate_deadline(new: &Value, old: &Value, path: &Path, problems: &mut Problems) -> bool {
    let field = "activeDeadlineSeconds";
    match (new[field].as_i64(), old[field].as_i64()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            problems.invalid(path, field, seconds, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            problems.invalid(path, field, seconds, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            problems.invalid(
                path,
                field,
                Value::Null,
                "must not update from a positive integer to nil value",
            );
            true
        }
        _ => true,
    }
}

fn validate_added_tolerations(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    let without_time = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.remove("tolerationSeconds");
        toleration
    };
    let kept: HashSet<Value> = new.list("tolerations").iter().map(without_time).collect();
    if !old
        .list("tolerations")
        .iter()
        .all(|toleration| kept.contains(&without_time(toleration)))
    {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        return problems.forbidden(path, "tolerations", detail);
    }
    validate_tolerations(new.list("tolerations"), &path.child("tolerations"), problems);
}

fn validate_removed_gates(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    let before: HashSet<&Value> = old.list("schedulingGates").iter().collect();
    for (index, gate) in new.list("schedulingGates").iter().enumerate() {
        if !before.contains(gate) {
            let name = gate.text("name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            problems.forbidden(&path.child("schedulingGates").index(index), "name", detail);
        }
    }
}

/// The new spec with everything that may differ taken from the old one.
fn with_allowed_changes(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for list in ["containers", "initContainers"] {
        for (container, before) in spec.list_mut(list).iter_mut().zip(old.list(list)) {
            take(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        take(&mut spec, old, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if old.number(grace) < 0 && new.number(grace) == 1 {
        take(&mut spec, old, grace);
    }
    // A pod that is held back may still be told where to run, since no scheduler has looked at it.
    if !old.list("schedulingGates").is_empty() {
        take(&mut spec, old, "nodeSelector");
        let had = old["affinity"].has("nodeAffinity");
        if spec.has("affinity") || had {
            take(spec.ensure("affinity"), &old["affinity"], "nodeAffinity");
        }
        let is_empty = spec["affinity"].as_object().is_some_and(|affinity| affinity.is_empty());
        if is_empty && !old.has("affinity") {
            spec.remove("affinity");
        }
    }
    spec
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Where a pod that is held back may run can only become less.
fn validate_gated(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    let mut before = old.entries("nodeSelector");
    if before.any(|(key, value)| new["nodeSelector"][key] != *value) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        problems.invalid(path, "nodeSelector", new["nodeSelector"].clone(), detail);
    }
    let terms = |spec: &Value| spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].clone();
    let (after, before) = (terms(new), terms(old));
    let items = |terms: &Value| terms.as_array().cloned().unwrap_or_default();
    let (new_terms, old_terms) = (items(&after), items(&before));
    let path = path
        .child("affinity")
        .child("nodeAffinity")
        .child(REQUIRED)
        .child("nodeSelectorTerms");
    if old_terms.is_empty() {
        return;
    }
    if new_terms.len() != old_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return problems.invalid(&path, "", after, detail);
    }
    for (index, (after, before)) in new_terms.iter().zip(&old_terms).enumerate() {
        if !only_adds(after, before) {
            let detail = "only additions are allowed (no mutations or deletions)";
            problems.invalid(&path.index(index), "", after.clone(), detail);
        }
    }
}

/// A term that picked nothing cannot begin to pick.
fn only_adds(after: &Value, before: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| before.list(list).is_empty()) {
        return lists.iter().all(|list| after.list(list).is_empty());
    }
    lists.iter().all(|list| after.list(list).starts_with(before.list(list)))
}

fn take(to: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to.set(field, value.clone()),
        None => {
            to.remove(field);
        }
    }
}

fn changed_fields(new: &Value, old: &Value) -> Vec<String> {
    let new = with_allowed_changes(new, old);
    let keys = |value: &Value| {
        value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .collect::<Vec<_>>()
    };
    let mut fields: Vec<String> = keys(&new).into_iter().chain(keys(old)).collect();
    fields.sort_unstable();
    fields.dedup();
    fields.retain(|field| new[field] != old[field]);
    fields.into_iter().map(|field| format!("spec.{field}")).collect()
}
