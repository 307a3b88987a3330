//! Holds the rules of every kind to what upstream's server answered to the same objects.
//!
//! `facts/agreement/requests.jsonl` has the objects, `answers.jsonl` what upstream v1.36.4 made of each: the object as it
//! would be stored, or why it is refused. `interop/agreement.sh` records the answers anew.

use api::{Error, FieldError, Generation, Resource, Value};
use expect_test::expect;
use serde_json::json;

const REQUESTS: &str = include_str!("../facts/agreement/requests.jsonl");
const ANSWERS: &str = include_str!("../facts/agreement/answers.jsonl");

/// The objects on which we differ from upstream, and how. Nothing may be added here without a reason: upstream refuses
/// the address of `bad2` before it looks at the rest, our JSON reader has words of its own, and an empty list of
/// drivers is as good as none.
#[test]
fn objects_become_what_upstream_makes_of_them() {
    let mut differences = String::new();
    let mut compared = 0;
    for (request, answer) in REQUESTS.lines().zip(ANSWERS.lines()) {
        let request: Value = serde_json::from_str(request).unwrap();
        let answer: Value = serde_json::from_str(answer).unwrap();
        // What cannot be decoded never reaches a kind's rules.
        if answer["code"] == 400 {
            continue;
        }
        compared += 1;
        let object = &request["object"];
        let ours = create(object);
        let (theirs, ours) = (comparable(answer, object), comparable(ours, object));
        if theirs != ours {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let kind = object["kind"].as_str().unwrap_or_default();
            differences += &format!("{kind}/{name}\n{}", difference(&theirs, &ours));
        }
    }
    assert_eq!(REQUESTS.lines().count(), ANSWERS.lines().count());
    assert!(compared > 200);
    expect![[r#"
        Service/bad2
          karve    spec.ports[0].name Required value
          karve    spec.ports[1] Duplicate value: {"port":80,"protocol":"TCP"}
          karve    spec.ports[1].nodePort Forbidden: may not be used when `type` is 'ClusterIP'
        Secret/docker
          upstream data[.dockerconfigjson] Invalid value: "<secret contents redacted>": invalid character 'x' looking for beginning of value
          karve    data[.dockerconfigjson] Invalid value: "<secret contents redacted>": expected value at line 1 column 1
        CSINode/min
          upstream .spec.drivers null
    "#]].assert_eq(&differences);
}

/// Creates an object as the registry does, without admission and without a store.
fn create(object: &Value) -> Value {
    let resource = resource(object);
    let ty = schema::builtin()
        .object(&resource.api_version(), resource.kind)
        .unwrap();
    let bytes = object.to_string();
    let mut value = schema::decode_json(ty, bytes.as_bytes()).unwrap().value;
    let metadata = value["metadata"].as_object_mut().unwrap();
    metadata.insert("uid".to_owned(), "00000000-0000-4000-8000-000000000000".into());
    metadata.insert("creationTimestamp".to_owned(), "2026-01-01T00:00:00Z".into());
    if let Some(prefix) = object["metadata"]["generateName"].as_str() {
        metadata.insert("name".to_owned(), format!("{prefix}x2b4c").into());
    }
    if matches!(
        resource.rules.generation(),
        Generation::Spec | Generation::SpecAndLabels
    ) {
        metadata.insert("generation".to_owned(), 1.into());
    }
    if resource.has_status() && !resource.rules.keeps_status_on_create() {
        value.as_object_mut().unwrap().remove("status");
    }
    complete(resource, &mut value);
    resource.rules.prepare_create(&mut value);
    complete(resource, &mut value);
    let mut problems = api::validate_metadata(resource, &value);
    problems.extend(resource.rules.validate(&value));
    problems.extend(resource.rules.validate_create(&value));
    if problems.is_empty() {
        value
    } else {
        refusal(resource, &value, problems)
    }
}

fn complete(resource: &Resource, value: &mut Value) {
    let ty = schema::builtin()
        .object(&resource.api_version(), resource.kind)
        .unwrap();
    schema::apply_table_defaults(ty, value);
    resource.rules.default(value);
    schema::normalize(ty, value).unwrap();
}

fn refusal(resource: &Resource, value: &Value, problems: Vec<FieldError>) -> Value {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    Error::invalid(resource, name, problems).to_status()
}

fn resource(object: &Value) -> &'static Resource {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    api::kinds::find_kind(group, version, object["kind"].as_str().unwrap()).unwrap()
}

/// Drops what is random, or the registry's and not the kind's. Of a refusal the causes are compared.
fn comparable(mut answer: Value, request: &Value) -> Value {
    if answer["kind"] == "Status" {
        let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
        let mut causes: Vec<String> = causes.iter().map(cause).collect();
        causes.sort_unstable();
        return json!(causes);
    }
    let metadata = answer["metadata"].as_object_mut().unwrap();
    for field in ["uid", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    if request["metadata"]["name"].is_null() {
        metadata.remove("name");
    }
    if request["kind"] == "Service" {
        drop_allocations(&mut answer, request);
    }
    serde_json::from_str(&without_random(&answer.to_string())).unwrap()
}

/// A struct in a message is shown with the names of upstream's code, which are not the API's.
fn cause(cause: &Value) -> String {
    let text = |field: &str| without_random(cause[field].as_str().unwrap_or_default());
    let message = text("message");
    let message = match (message.find(": {"), message.rfind("}: ")) {
        (Some(start), Some(end)) => format!("{}: …{}", &message[..start], &message[end + 1..]),
        _ => message,
    };
    format!("{} {}", text("field"), message)
}

fn drop_allocations(service: &mut Value, request: &Value) {
    let spec = service["spec"].as_object_mut().unwrap();
    for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
        if request["spec"][field].is_null() {
            spec.remove(field);
        }
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        port.as_object_mut().unwrap().remove("nodePort");
    }
}

/// Replaces identifiers and times.
fn without_random(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let token: &str = &rest[..rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != ':')
            .unwrap_or(rest.len())];
        let is_uid = token.len() == 36 && token.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        let is_time = token.len() == 20 && token.ends_with('Z') && token.as_bytes()[10] == b'T';
        if is_uid || is_time {
            plain.push('~');
            rest = &rest[token.len()..];
        } else if token.is_empty() {
            plain.push(character);
            rest = &rest[character.len_utf8()..];
        } else {
            plain.push_str(token);
            rest = &rest[token.len()..];
        }
    }
    plain
}

fn difference(theirs: &Value, ours: &Value) -> String {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    leaves(theirs, String::new(), &mut left);
    leaves(ours, String::new(), &mut right);
    let mut shown = String::new();
    for line in left.iter().filter(|line| !right.contains(line)) {
        shown += &format!("  upstream {line}\n");
    }
    for line in right.iter().filter(|line| !left.contains(line)) {
        shown += &format!("  karve    {line}\n");
    }
    shown
}

fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields
                .iter()
                .for_each(|(key, value)| leaves(value, format!("{path}.{key}"), found));
        }
        Value::Array(items) if items.iter().all(Value::is_string) => {
            found.extend(items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| leaves(value, format!("{path}[{index}]"), found));
        }
        leaf => found.push(format!("{path} {leaf}")),
    }
}
