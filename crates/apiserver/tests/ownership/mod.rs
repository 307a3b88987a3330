//! Holds patches, apply and the owners of fields to what upstream's server answered to the same requests.
//!
//! `facts/ownership/requests.jsonl` has the requests in their order, `answers.jsonl` what upstream v1.36.4 answered.
//! `interop/ownership.sh` records the answers anew.

use std::collections::BTreeMap;

use expect_test::expect;
use http::StatusCode;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const REQUESTS: &str = include_str!("../../facts/ownership/requests.jsonl");
const ANSWERS: &str = include_str!("../../facts/ownership/answers.jsonl");

/// Upstream's recording ran without them, because they are not what is compared.
const NO_PLUGINS: &[&str] = &[
    "LimitRanger",
    "ServiceAccount",
    "TaintNodesByCondition",
    "Priority",
    "DefaultTolerationSeconds",
    "StorageObjectInUseProtection",
];

/// The requests on which we differ from upstream, and how: our YAML reader has words of its own, and upstream reads the
/// result of a strategic merge patch by other means than other bodies.
#[tokio::test]
async fn owners_and_patches_are_upstreams() {
    let cluster = Cluster::start_without(NO_PLUGINS).await;
    let mut differences = String::new();
    let mut compared = 0;
    for (request, answer) in REQUESTS.lines().zip(ANSWERS.lines()) {
        let request: Value = serde_json::from_str(request).unwrap();
        let answer: Value = serde_json::from_str(answer).unwrap();
        let ours = ask(&cluster, &request).await;
        let (theirs, ours) = (comparable(answer), comparable(ours));
        compared += 1;
        if theirs != ours {
            let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
            differences += &format!("{}: {} {}\n", text("note"), text("method"), text("path"));
            differences += &difference(&theirs, &ours);
        }
    }
    assert_eq!(REQUESTS.lines().count(), ANSWERS.lines().count());
    assert!(compared > 150);
    expect![[r#"
        not yaml: PATCH /api/v1/namespaces/default/configmaps/a?fieldManager=one
          upstream .body.message "error decoding YAML: error converting YAML to JSON: yaml: did not find expected node content"
          karve    .body.message "error decoding YAML: error converting YAML to JSON: yaml: line 1: mismatched bracket '[' closed by '}' at line 1, column 5"
    "#]].assert_eq(&differences);
}

async fn ask(cluster: &Cluster, request: &Value) -> Value {
    let text = |field: &str| request[field].as_str().unwrap_or_default();
    let body = match &request["body"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let headers = [("content-type", text("type")), ("user-agent", text("agent"))];
    let (code, warnings, body) = cluster.ask(text("method"), text("path"), &headers, body).await;
    let warnings: Vec<Value> = warnings
        .iter()
        .filter_map(|warning| serde_json::from_str(warning.strip_prefix("299 - ")?).ok())
        .collect();
    json!({ "code": code.as_u16(), "warnings": warnings, "body": body })
}

/// What two servers can agree on: no times, no random parts, no causes in the order of a Go map.
fn comparable(mut answer: Value) -> Value {
    let body = &mut answer["body"];
    if let Some(metadata) = body["metadata"].as_object_mut() {
        for random in ["creationTimestamp", "uid", "resourceVersion"] {
            metadata.remove(random);
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            for entry in &mut *entries {
                entry.as_object_mut().map(|entry| entry.remove("time"));
            }
            // Their order is that of their times.
            entries.sort_by_key(|entry| {
                let name = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
                ["manager", "operation", "apiVersion", "subresource"].map(name)
            });
        }
    }
    if let Some(spec) = body["spec"].as_object_mut() {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if let Some(causes) = body["details"]["causes"].as_array_mut() {
        causes.iter_mut().for_each(|cause| shorten(&mut cause["message"]));
        causes.sort_by_key(Value::to_string);
    }
    if body.is_object() && body["kind"] == "Status" {
        shorten(&mut body["message"]);
    }
    answer
}

/// The text of a whole object in a message has its random parts too.
fn shorten(message: &mut Value) {
    const VALUE: &str = "Invalid value: \"{";
    const UID: &str = "UID in object meta: ";
    let Some(text) = message.as_str() else { return };
    if let Some(at) = text.find(UID) {
        *message = text[..at + UID.len()].into();
        return;
    }
    // Several problems come in the order of a Go map.
    if let Some((head, problems)) = text.split_once("errors:\n") {
        let mut problems: Vec<&str> = problems.lines().collect();
        problems.sort_unstable();
        *message = format!("{head}errors:\n{}", problems.join("\n")).into();
        return;
    }
    if let (Some(start), Some(end)) = (text.find(VALUE), text.rfind("}\": ")) {
        *message = format!("{}Invalid value: …{}", &text[..start], &text[end + 2..]).into();
    }
}

fn difference(theirs: &Value, ours: &Value) -> String {
    let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
    flatten("", theirs, &mut left);
    flatten("", ours, &mut right);
    let mut text = String::new();
    for (who, one, other) in [("upstream", &left, &right), ("karve   ", &right, &left)] {
        for (path, value) in one.iter().filter(|(path, value)| other.get(*path) != Some(value)) {
            text += &format!("  {who} {path} {value}\n");
        }
    }
    text
}

fn flatten(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                flatten(&format!("{path}.{key}"), value, leaves);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, value) in items.iter().enumerate() {
                flatten(&format!("{path}[{at}]"), value, leaves);
            }
        }
        leaf => drop(leaves.insert(path.to_owned(), leaf.clone())),
    }
}

#[tokio::test]
async fn an_update_with_an_empty_list_forgets_all_managers() {
    let cluster = Cluster::start().await;
    let collection = "/api/v1/namespaces/default/configmaps";
    let new = json!({ "metadata": { "name": "a" }, "data": { "managedFields": "[]" } });
    let (_, created) = cluster.post(collection, &new).await;
    let managers = |object: &Value| object["metadata"]["managedFields"].clone();
    assert!(managers(&created).is_array(), "{created}");
    let path = format!("{collection}/a");
    // Who leaves the list away knows nothing of it.
    let mut without = created.clone();
    without["metadata"]["managedFields"].take();
    let (_, kept) = cluster.put(&path, &without).await;
    assert_eq!(managers(&kept), managers(&created));
    let mut empty = created.clone();
    empty["metadata"]["managedFields"] = json!([]);
    let (_, cleared) = cluster.put(&path, &empty).await;
    assert_eq!(managers(&cleared), Value::Null);
    // The same in YAML.
    let new = json!({ "metadata": { "name": "b" }, "data": { "k": "v" } });
    let (_, created) = cluster.post(collection, &new).await;
    assert!(managers(&created).is_array(), "{created}");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, managedFields: []}\n".to_owned();
    let headers = [("content-type", "application/yaml")];
    let (code, _, cleared) = cluster.ask("PUT", &format!("{collection}/b"), &headers, yaml).await;
    assert_eq!((code, managers(&cleared)), (StatusCode::OK, Value::Null));
}
