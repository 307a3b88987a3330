//! Changes of a pod through its subresources, which may touch what an ordinary update may not.

use std::collections::HashMap;

use super::quality_of_service;
use crate::pod_spec::resources::read;
use crate::{Fields, Path, Problems, Value};
use serde_json::json;

/// `ephemeralcontainers`: more of them can come, none can go or change.
pub fn validate_ephemeral_containers(new: &Value, old: &Value) -> Problems {
    let mut problems = Problems::default();
    if is_static(old) {
        problems.forbidden(&Path::default(), "", "static pods do not support ephemeral containers");
        return problems;
    }
    let path = Path::new("spec").child("ephemeralContainers");
    let containers = new["spec"].list("ephemeralContainers").iter().rev();
    let after: HashMap<&str, &Value> = containers
        .map(|container| (container.text("name"), container))
        .collect();
    for before in old["spec"].list("ephemeralContainers") {
        let name = before.text("name");
        match after.get(name) {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                problems.forbidden(&path, "", detail);
            }
            Some(after) if *after != before => {
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n");
                problems.forbidden(&path, "", detail);
            }
            Some(_) => {}
        }
    }
    problems
}

/// `resize`: the cpu and memory of a pod and its containers can change while they run, within their class of service.
pub fn validate_resize(new: &Value, old: &Value) -> Problems {
    let mut problems = Problems::default();
    if is_static(old) {
        problems.forbidden(&Path::default(), "", "static pods cannot be resized");
        return problems;
    }
    let path = Path::new("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    if quality_of_service(new) != quality_of_service(old) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        problems.invalid(&path, "", quality_of_service(old), detail);
    }
    validate_pod_level_kept(new, old, &path, &mut problems);
    let same =
        ["containers", "initContainers"].map(|list| validate_same_containers(new, old, list, &path, &mut problems));
    if same.contains(&false) {
        return problems;
    }
    for list in ["containers", "initContainers"] {
        for (index, (after, before)) in new.list(list).iter().zip(old.list(list)).enumerate() {
            let path = path.child(list).index(index).child("resources");
            validate_kept(&after["resources"], &before["resources"], &path, &mut problems);
        }
    }
    refuse_restarts_of_init_containers(new, old, &path, &mut problems);
    if without_amounts(new) != without_amounts(old) {
        problems.forbidden(&path, "", "only cpu and memory resources are mutable");
    }
    problems
}

/// A resize that asks for anything else is given only the resize. Containers that came, went or changed places are left
/// for validation to tell.
pub fn keep_all_but_resources(new: &mut Value, old: &Value) {
    let mut kept = old["spec"].clone();
    let wanted = new["spec"].clone();
    for list in ["containers", "initContainers"] {
        let names = |spec: &Value| -> Vec<String> {
            let containers = spec.list(list).iter();
            containers.map(|container| container.text("name").to_owned()).collect()
        };
        if names(&wanted) != names(&kept) {
            kept.set(list, wanted[list].clone());
            continue;
        }
        for (container, wanted) in kept.list_mut(list).iter_mut().zip(wanted.list(list)) {
            take(container, wanted, "resources");
            take(container, wanted, "resizePolicy");
        }
    }
    take(&mut kept, &wanted, "resources");
    new.set("spec", kept);
}

fn take(to: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to.set(field, value.clone()),
        None => drop(to.remove(field)),
    }
}

/// Terms that name labels of the pod itself (`matchLabelKeys`, `mismatchLabelKeys`) select by their values at once.
pub fn select_own_labels(spec: &mut Value, labels: &Value) {
    for constraint in spec.list_mut("topologySpreadConstraints") {
        select(constraint, labels);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.child_mut("affinity").and_then(|affinity| affinity.child_mut(kind)) else {
            continue;
        };
        for term in affinity.list_mut("requiredDuringSchedulingIgnoredDuringExecution") {
            select(term, labels);
        }
        for term in affinity.list_mut("preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = term.child_mut("podAffinityTerm") {
                select(term, labels);
            }
        }
    }
}

fn select(term: &mut Value, labels: &Value) {
    if !term.has("labelSelector") {
        return;
    }
    let mut own = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.list(field).iter().filter_map(Value::as_str) {
            if let Some(value) = labels[key].as_str() {
                own.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if !own.is_empty() {
        let selector = term.ensure("labelSelector");
        let mut expressions = selector.list("matchExpressions").to_vec();
        expressions.extend(own);
        selector.set("matchExpressions", expressions);
    }
}

fn is_static(pod: &Value) -> bool {
    pod["metadata"]["annotations"].has("kubernetes.io/config.mirror")
}

fn validate_same_containers(new: &Value, old: &Value, list: &str, path: &Path, problems: &mut Problems) -> bool {
    if new.list(list).len() != old.list(list).len() {
        problems.forbidden(path, list, format!("{list} may not be added or removed on resize"));
        return false;
    }
    let mut same = true;
    for (index, (after, before)) in new.list(list).iter().zip(old.list(list)).enumerate() {
        if after["name"] != before["name"] {
            let detail = format!("{list} may not be renamed or reordered on resize");
            problems.forbidden(&path.child(list).index(index), "name", detail);
            same = false;
        }
    }
    same
}

/// What the pod asks for as a whole can change, but not go.
fn validate_pod_level_kept(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    if !old["resources"].is_object() {
        return;
    }
    if !new["resources"].is_object() {
        problems.forbidden(path, "resources", "pod-level resources cannot be removed");
        return;
    }
    for list in ["requests", "limits"] {
        let (after, before) = (read(&new["resources"], list), read(&old["resources"], list));
        if before.keys().any(|name| !after.contains_key(name)) {
            let detail = format!("pod-level resource {list} cannot be removed");
            problems.forbidden(&path.child("resources"), list, detail);
        }
    }
}

/// An init container that runs to its end cannot be started again in the middle.
fn refuse_restarts_of_init_containers(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    let containers = new.list("initContainers").iter().zip(old.list("initContainers"));
    for (index, (after, before)) in containers.enumerate() {
        let mut policies = after.list("resizePolicy").iter();
        let restarts = policies.any(|policy| policy.text("restartPolicy") == "RestartContainer");
        if after != before && after.text("restartPolicy") != "Always" && restarts {
            let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            problems.forbidden(&path.child("initContainers").index(index), "", detail);
        }
    }
}

/// An amount can change, but not go.
fn validate_kept(new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    for list in ["requests", "limits"] {
        let (after, before) = (read(new, list), read(old, list));
        let gone = ["cpu", "memory"]
            .iter()
            .any(|name| before.contains_key(*name) && !after.contains_key(*name));
        if gone {
            problems.forbidden(path, list, format!("resource {list} cannot be removed"));
        }
    }
}

fn without_amounts(spec: &Value) -> Value {
    let mut spec = spec.clone();
    remove_amounts(spec.ensure("resources"));
    for list in ["containers", "initContainers"] {
        for container in spec.list_mut(list) {
            remove_amounts(container.ensure("resources"));
        }
    }
    spec
}

fn remove_amounts(resources: &mut Value) {
    for amounts in ["requests", "limits"] {
        if let Some(amounts) = resources.child_mut(amounts) {
            amounts.remove("cpu");
            amounts.remove("memory");
        }
        if resources.entries(amounts).next().is_none() {
            resources.remove(amounts);
        }
    }
}
