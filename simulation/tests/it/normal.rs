//! End states as text in which two runs can be compared: without what the clock and the dice decide.

use std::collections::BTreeSet;

use api::Value;
use serde_json::{Map, json};

use crate::history::Objects;
use crate::script::Scenario;
use crate::world::EndState;

/// Fields that differ from run to run.
const DROPPED: &[&str] = &[
    "addresses",
    "batch.kubernetes.io/cronjob-scheduled-timestamp",
    "clusterIP",
    "clusterIPs",
    "completionTime",
    "creationTimestamp",
    "currentHealthy",
    "generation",
    "ip",
    "lastScheduleTime",
    "lastSuccessfulTime",
    "lastProbeTime",
    "lastTransitionTime",
    "lastUpdateTime",
    "managedFields",
    "message",
    "nodeName",
    "observedGeneration",
    "resourceVersion",
    "startTime",
    "targetRef",
    "uid",
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// The objects of every scenario, each on a line.
pub fn end_state(objects: &Objects, scenarios: &[&'static Scenario]) -> EndState {
    let lines = |namespace: &str| {
        let own = objects.values().filter(|object| is_in(object, namespace));
        let mut lines: Vec<String> = own.map(|object| normalised(object).to_string()).collect();
        lines.sort();
        lines
    };
    scenarios
        .iter()
        .map(|scenario| (scenario.namespace, lines(scenario.namespace)))
        .collect()
}

fn is_in(object: &Value, namespace: &str) -> bool {
    let metadata = &object["metadata"];
    metadata["namespace"] == namespace || (object["kind"] == "Namespace" && metadata["name"] == namespace)
}

fn normalised(object: &Value) -> Value {
    let is_observed = match &object["status"]["observedGeneration"] {
        Value::Null => Value::Null,
        observed => Value::Bool(*observed == object["metadata"]["generation"]),
    };
    let mut normal = match object["kind"].as_str() {
        Some("Pod") => pod(object),
        _ => object.clone(),
    };
    normal["isObserved"] = is_observed;
    // What a Deployment notes on a ReplicaSet when it scales it stays there as it was when it was last scaled.
    if object["kind"] == "ReplicaSet" && object["spec"]["replicas"] == 0 {
        normal["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] = Value::Null;
        normal["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"] = Value::Null;
    }
    // A pod that was created twice because an answer got lost is taken away again, and counted as failed, by upstream's too.
    if object["kind"] == "Job" {
        normal["status"]["failed"] = Value::Null;
    }
    if let Some(generated) = object["metadata"]["generateName"].as_str() {
        let is_ordinal = object["metadata"]["labels"]["apps.kubernetes.io/pod-index"].is_string();
        if !is_ordinal {
            normal["metadata"]["name"] = format!("{generated}*").into();
        }
    }
    clean(&mut normal);
    normal
}

/// What a pod is and whether it runs; its spec is its owner's template.
fn pod(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions
        .filter(|one| one["type"] == "Ready")
        .any(|one| one["status"] == "True");
    json!({
        "kind": "Pod",
        "metadata": {
            "name": metadata["name"], "labels": metadata["labels"], "finalizers": metadata["finalizers"],
            "isDeleting": !metadata["deletionTimestamp"].is_null(),
            "owner": metadata["ownerReferences"][0]["name"],
        },
        "image": pod["spec"]["containers"][0]["image"],
        "isBound": pod["spec"]["nodeName"].is_string(),
        "phase": pod["status"]["phase"],
        "isReady": is_ready,
    })
}

fn clean(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Absent and zero say the same.
            fields.retain(|name, value| !DROPPED.contains(&name.as_str()) && !value.is_null() && *value != 0);
            fields.values_mut().for_each(clean);
            sort(fields);
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::String(text) => *text = without_numbers(text),
        _ => {}
    }
}

/// Lists whose order says nothing.
fn sort(fields: &mut Map<String, Value>) {
    for name in ["conditions", "endpoints", "subsets"] {
        if let Some(Value::Array(items)) = fields.get_mut(name) {
            items.sort_by_key(Value::to_string);
        }
    }
}

/// The names of a CronJob's Jobs hold minutes, labels hold UIDs.
fn without_numbers(text: &str) -> String {
    let is_uid = text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4;
    if is_uid {
        return "<uid>".to_owned();
    }
    let mut parts = text.split('-').map(|part| {
        let is_number = part.len() > 6 && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { "#" } else { part }
    });
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "-" + part)
}

/// What one of two end states has and the other has not; of objects that both have, only the fields.
pub fn differences(expected: &EndState, found: &EndState) -> Vec<String> {
    let mut differences = Vec::new();
    for (namespace, expected) in expected {
        let mut found = found.get(namespace).cloned().unwrap_or_default();
        let mut missing = Vec::new();
        for line in expected {
            match found.iter().position(|other| other == line) {
                Some(at) => drop(found.remove(at)),
                None => missing.push(line),
            }
        }
        for line in missing {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            let is_same =
                |other: &Value| other["kind"] == line["kind"] && other["metadata"]["name"] == line["metadata"]["name"];
            let at = found
                .iter()
                .position(|other| serde_json::from_str(other).is_ok_and(|other| is_same(&other)));
            let other = at
                .and_then(|at| serde_json::from_str(&found.remove(at)).ok())
                .unwrap_or_default();
            let named = format!("{namespace}: {} {}", line["kind"], line["metadata"]["name"]);
            compare(&named, &line, &other, &mut differences);
        }
        differences.extend(found.iter().map(|line| format!("{namespace}: unexpected {line}")));
    }
    differences
}

/// The fields by which two values differ.
fn compare(path: &str, one: &Value, other: &Value, differences: &mut Vec<String>) {
    let (Value::Object(ones), Value::Object(others)) = (one, other) else {
        if one != other {
            differences.push(format!("{path}: {other} instead of {one}"));
        }
        return;
    };
    let names: BTreeSet<&String> = ones.keys().chain(others.keys()).collect();
    for name in names {
        compare(
            &format!("{path}.{name}"),
            &one[name.as_str()],
            &other[name.as_str()],
            differences,
        );
    }
}

/// What must not be in any end state: objects whose owners are gone, and endpoints that are no ready pods.
pub fn flaws(objects: &Objects) -> Vec<String> {
    let uids: BTreeSet<&str> = objects
        .values()
        .filter_map(|object| object["metadata"]["uid"].as_str())
        .collect();
    let mut flaws = Vec::new();
    for (key, object) in objects {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        for owner in owners.filter(|owner| !owner["uid"].as_str().is_some_and(|uid| uids.contains(uid))) {
            flaws.push(format!("{key} has an owner that is gone: {owner}"));
        }
        if object["kind"] == "EndpointSlice" {
            flaws.extend(wrong_endpoints(key, object, objects));
        }
    }
    flaws
}

fn wrong_endpoints(key: &str, slice: &Value, objects: &Objects) -> Option<String> {
    let app = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str()?;
    let namespace = slice["metadata"]["namespace"].as_str()?;
    if namespace == "default" {
        return None;
    }
    let pods = objects
        .values()
        .filter(|object| object["kind"] == "Pod" && is_in(object, namespace));
    let pods = pods.filter(|pod| pod["metadata"]["labels"]["app"] == app && pod["status"]["phase"] == "Running");
    let wanted: BTreeSet<String> = pods.map(|pod| pod["status"]["podIP"].to_string()).collect();
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let found: BTreeSet<String> = endpoints.map(|one| one["addresses"][0].to_string()).collect();
    (found != wanted).then(|| format!("{key} has {found:?} instead of {wanted:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_states_differ_by_what_was_not_decided_by_the_dice() {
        let set = |uid: &str, replicas: u32| json!({"kind": "ReplicaSet", "metadata": {"name": "web", "uid": uid}, "spec": {"replicas": replicas}});
        let state = |object: &Value| EndState::from([("a", vec![normalised(object).to_string()])]);
        let one = state(&set("1", 2));
        assert!(differences(&one, &state(&set("2", 2))).is_empty());
        let found = differences(&one, &state(&set("1", 3)));
        assert_eq!(found, [r#"a: "ReplicaSet" "web".spec.replicas: 3 instead of 2"#]);
        assert_eq!(differences(&one, &EndState::from([("a", Vec::new())])).len(), 1);
    }

    #[test]
    fn orphans_and_wrong_endpoints_are_flaws() {
        let pod = json!({
            "kind": "Pod", "metadata": {"namespace": "a", "labels": {"app": "web"}, "ownerReferences": [{"uid": "gone"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        });
        let slice = |address: &str| {
            json!({
                "kind": "EndpointSlice",
                "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "web"}},
                "endpoints": [{"addresses": [address]}],
            })
        };
        let flaws = |address| {
            flaws(&Objects::from([
                ("pod".into(), pod.clone()),
                ("slice".into(), slice(address)),
            ]))
            .len()
        };
        assert_eq!(flaws("10.0.0.1"), 1, "the orphan");
        assert_eq!(flaws("10.0.0.2"), 2);
    }
}
