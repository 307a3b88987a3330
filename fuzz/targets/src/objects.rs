//! Objects: read, written, patched, applied and judged.

use schema::ownership::{self, Filter, Node, Versions, Writer};
use schema::{TypeRef, Value};
use serde_json::json;

/// One request per line, as upstream was asked: objects of every kind, sound and broken.
const REQUESTS: &str = include_str!("../../../crates/api/facts/agreement/requests.jsonl");
const NOW: i64 = 1_767_225_600;

/// The type that an object says it has; a pod unless it says something known.
fn type_of(value: &Value) -> TypeRef<'static> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let schema = schema::builtin();
    let known = schema.object(text("apiVersion"), text("kind"));
    known.or_else(|| schema.object("v1", "Pod")).expect("there are pods")
}

/// What a client's bytes become, with their type.
fn decoded(data: &[u8]) -> Option<(TypeRef<'static>, Value)> {
    let ty = type_of(&schema::decode_untyped(data).ok()?.value);
    Some((ty, schema::decode_json(ty, data).ok()?.value))
}

/// The two lines of an input.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

pub fn json(data: &[u8]) {
    let _ = schema::parse_json(data);
    let Some((ty, value)) = decoded(data) else {
        return;
    };
    // A pointer to the zero time is written as null; after that nothing changes any more.
    let settled = schema::decode_json(ty, &schema::encode_json(&value)).expect("we read what we wrote");
    let again = schema::decode_json(ty, &schema::encode_json(&settled.value)).expect("we read what we wrote");
    assert_eq!(settled.value, again.value);
    let mut written = Vec::new();
    schema::write_with_resource_version(&mut written, &schema::encode_json(&settled.value), 7);
    if settled.value["metadata"].is_object() {
        assert_eq!(
            schema::parse_json(&written).expect("it is JSON")["metadata"]["resourceVersion"],
            "7"
        );
    }
}

pub fn yaml(data: &[u8]) {
    let _ = schema::duplicate_yaml_key(data);
    let _ = schema::parse_yaml(data);
    if let Ok(untyped) = schema::decode_untyped_yaml(data) {
        let _ = schema::decode_yaml(type_of(&untyped.value), data);
    }
}

/// The first two bytes choose among all types, the others are a message.
pub fn protobuf(data: &[u8]) {
    let _ = schema::envelope::decode(data);
    let _ = schema::decode_object(schema::builtin(), data);
    let Some((choice, message)) = data.split_first_chunk::<2>() else {
        return;
    };
    let types: Vec<TypeRef<'static>> = schema::builtin().types().collect();
    let ty = types[usize::from(u16::from_le_bytes(*choice)) % types.len()];
    if let Ok(value) = schema::decode_protobuf(ty, message) {
        let written = schema::encode_protobuf(ty, &value).expect("what was read can be written");
        let again = schema::decode_protobuf(ty, &written).expect("what was written can be read");
        assert_eq!(schema::encode_protobuf(ty, &again).ok(), Some(written), "{}", ty.name);
    }
}

pub fn strategic_merge(data: &[u8]) {
    let (object, patch) = halves(data);
    if let (Some((ty, object)), Ok(patch)) = (decoded(object), schema::decode_untyped(patch)) {
        if let Ok(mut patched) = schema::strategic_merge_patch(ty, &object, &patch.value) {
            let _ = schema::normalize(ty, &mut patched);
        }
        let mut merged = schema::merge_patch(&object, &patch.value);
        let _ = schema::normalize(ty, &mut merged);
    }
}

pub fn json_patch(data: &[u8]) {
    let (object, patch) = halves(data);
    if let (Ok(object), Ok(patch)) = (schema::decode_untyped(object), schema::decode_untyped(patch)) {
        let _ = schema::json_patch(&object.value, &patch.value);
    }
}

/// A built-in kind in all its versions.
struct Kind<'a>(&'a str);

impl Versions for Kind<'_> {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        schema::builtin().object(api_version, self.0).map(Node::for_type)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let mut converted = object.clone();
        api::convert(&mut converted, api_version);
        Some(converted)
    }
}

/// The first line is the live object with its managers, the second one is written and applied to it.
pub fn apply(data: &[u8]) {
    let (live, config) = halves(data);
    let (Some((ty, live)), Ok(config)) = (decoded(live), schema::decode_untyped(config)) else {
        return;
    };
    let entries = &live["metadata"]["managedFields"];
    if let Some(managers) = ownership::read(entries) {
        ownership::write(managers);
    }
    let (Some(api_version), Some(kind)) = (live["apiVersion"].as_str(), live["kind"].as_str()) else {
        return;
    };
    let writer = Writer {
        manager: "fuzzer",
        api_version,
        subresource: "",
        filter: Filter::default(),
        now: schema::time::Instant { seconds: NOW, nanos: 0 },
    };
    for force in [false, true] {
        if let Ok(mut applied) = ownership::apply(&Kind(kind), Some(&live), &config.value, &writer, force) {
            let _ = schema::normalize(ty, &mut applied);
        }
    }
    let mut written = config.value;
    if written.is_object() && schema::normalize(ty, &mut written).is_ok() {
        ownership::track(&Kind(kind), Some(&live), &mut written, &writer);
        ownership::track(&Kind(kind), None, &mut written, &writer);
    }
}

/// Both lines are created, and the second one is then an update of the first, as the registry does it without a store.
pub fn kinds(data: &[u8]) {
    let (old, new) = halves(data);
    let old = created(old);
    let new = created(new).or_else(|| old.clone());
    let (Some((resource, old)), Some((other, mut new))) = (old, new) else {
        return;
    };
    if resource.kind != other.kind || resource.group != other.group {
        return;
    }
    let rules = resource.rules;
    rules.prepare_update(&mut new, &old);
    complete(resource, &mut new);
    let mut problems = api::validate_metadata_update(resource, &new, &old);
    problems.extend(rules.validate_update(&new, &old));
    problems.extend(rules.validate_status_update(&new, &old));
    for subresource in resource.subresources {
        problems.extend(rules.validate_subresource_update(subresource.name, &new, &old));
    }
    api::Error::invalid(resource, "fuzzed", problems).to_status();
    rules.prepare_status_update(&mut new, &old);
    rules.deletion_grace_seconds(&new, Some(5));
    rules.prepare_deletion(&mut new, "2026-01-01T00:00:00Z");
    rules.prepare_termination(&mut new);
    rules.stamp_conditions(&mut new, &old, "2026-01-01T00:00:00Z");
}

/// An object that was created, whether or not it would be refused.
fn created(data: &[u8]) -> Option<(&'static api::Resource, Value)> {
    let (_, mut value) = decoded(data)?;
    let (api_version, kind) = (value["apiVersion"].as_str()?, value["kind"].as_str()?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = api::kinds::find_kind(group, version, kind)?;
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    let rules = resource.rules;
    complete(resource, &mut value);
    rules.prepare_create(&mut value);
    complete(resource, &mut value);
    let mut problems = api::validate_metadata(resource, &value);
    problems.extend(rules.validate(&value));
    problems.extend(rules.validate_create(&value));
    api::Error::invalid(resource, "fuzzed", problems).to_status();
    rules.warnings(&value);
    rules.status_warnings(&value);
    rules.lacks_list_keys(&value);
    rules.other_finalizers(&value);
    assert_eq!(
        rules.cells(&value, NOW).len(),
        rules.columns().len(),
        "{}",
        resource.kind
    );
    rules.field(&value, "spec.nodeName");
    api::quota::usage(resource, &value, NOW);
    Some((resource, value))
}

fn complete(resource: &api::Resource, value: &mut Value) {
    if let Some(ty) = schema::builtin().object(&resource.api_version(), resource.kind) {
        schema::apply_table_defaults(ty, value);
        resource.rules.default(value);
        let _ = schema::normalize(ty, value);
    }
}

/// The first line is a definition, the second one an object of it. Only definitions that would be stored are used.
pub fn custom(data: &[u8]) {
    let (definition, object) = halves(data);
    let (Some((resource, definition)), Ok(object)) = (created(definition), schema::decode_untyped(object)) else {
        return;
    };
    let mut problems = api::validate_metadata(resource, &definition);
    problems.extend(resource.rules.validate(&definition));
    problems.extend(resource.rules.validate_create(&definition));
    if resource.kind != "CustomResourceDefinition" || !problems.is_empty() {
        return;
    }
    for version in api::custom::Definition::parse(&definition).versions {
        let mut object = object.value.clone();
        if version.normalize(&mut object).is_ok() {
            version.complete(&mut object);
            version.validate(&object, None);
            version.validate(&object, Some(&object));
            version.printed.cells(&object, NOW);
        }
    }
}

/// The objects that upstream was asked about.
fn objects() -> impl Iterator<Item = Value> {
    let requests = REQUESTS
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    requests.map(|mut request| request["object"].take())
}

pub fn documents() -> Vec<Vec<u8>> {
    objects().map(|object| object.to_string().into_bytes()).collect()
}

pub fn yaml_documents() -> Vec<Vec<u8>> {
    let written = [
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - &c\n    name: a\n    image: b\n  - *c\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
        "<<: {a: 1}\n? [1, 2]\n: !!binary aGk=\nt: 2001-01-01\nn: ~\no: 0o17\ns: |+\n  x\n\n---\nb: 2\n",
    ];
    let written = written.into_iter().map(|text| text.as_bytes().to_vec());
    documents().into_iter().take(40).chain(written).collect()
}

pub fn messages() -> Vec<Vec<u8>> {
    let schema = schema::builtin();
    let names: Vec<Box<str>> = schema.types().map(|ty| ty.name.clone()).collect();
    let mut messages = Vec::new();
    for object in objects() {
        let Some((ty, value)) = decoded(object.to_string().as_bytes()) else {
            continue;
        };
        messages.extend(schema::encode_object(schema, &value));
        let place = names.iter().position(|name| *name == ty.name).unwrap_or_default() as u16;
        let message = schema::encode_protobuf(ty, &value).ok();
        messages.extend(message.map(|message| [&place.to_le_bytes(), message.as_slice()].concat()));
    }
    messages
}

/// Objects with a change of them.
pub fn pairs() -> Vec<Vec<u8>> {
    let all: Vec<Value> = objects().collect();
    let mut pairs = vec![managed_pair()];
    for (at, object) in all.iter().enumerate() {
        let other = all[..at].iter().rev().find(|other| other["kind"] == object["kind"]);
        pairs.push(format!("{object}\n{}", other.unwrap_or(object)).into_bytes());
    }
    pairs
}

fn managed_pair() -> Vec<u8> {
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}},
    });
    let manager = json!({
        "manager": "other", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    let spec = json!({"ports": [{"port": 80, "protocol": "TCP", "$patch": "delete"}, {"port": 81, "protocol": "TCP"}]});
    let live = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a", "labels": {"app": "a"}, "managedFields": [manager]},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]},
    });
    let config = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
    format!("{live}\n{config}").into_bytes()
}

pub fn json_patches() -> Vec<Vec<u8>> {
    let patch = json!([
        {"op": "test", "path": "/kind", "value": "Pod"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": {"c": [1]}},
        {"op": "copy", "from": "/spec", "path": "/spec/copy"},
        {"op": "move", "from": "/spec/containers/0", "path": "/spec/containers/-"},
        {"op": "replace", "path": "/spec/containers/0/name", "value": null},
        {"op": "remove", "path": "/metadata"},
    ]);
    documents()
        .into_iter()
        .take(20)
        .map(|object| [object, b"\n".to_vec(), patch.to_string().into_bytes()].concat())
        .collect()
}

pub fn definitions() -> Vec<Vec<u8>> {
    let schema = json!({"type": "object", "properties": {
        "spec": {
            "type": "object", "required": ["size"],
            "x-kubernetes-validations": [{"rule": "self.size < 10 && self.names.all(n, n.startsWith('a'))"}],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3, "multipleOf": 1},
                "names": {"type": "array", "items": {"type": "string", "pattern": "^a+$"}, "x-kubernetes-list-type": "set"},
                "port": {"x-kubernetes-int-or-string": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "when": {"type": "string", "format": "date-time", "nullable": true},
                "any": {"anyOf": [{"minLength": 1}, {"maxLength": 3}], "type": "string", "enum": ["a", "b"]},
                "more": {"type": "object", "additionalProperties": {"type": "number"}},
            },
        },
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Boat", "plural": "boats", "singular": "boat", "listKind": "BoatList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.names[?(@ == 'a')]"}],
                "selectableFields": [{"jsonPath": ".spec.size"}],
            }],
        },
    });
    let spec = json!({"size": 3, "names": ["aa"], "port": "x", "free": {"a": 1}, "when": null, "any": "a", "more": {"a": 1.5}});
    let object = json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "karve"}, "spec": spec});
    vec![format!("{definition}\n{object}").into_bytes()]
}
