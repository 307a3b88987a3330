//! The one document of version 2, made from those of version 3.

use std::sync::LazyLock;

use api::Value;
use bytes::Bytes;
use serde_json::{Map, json};

use super::{Document, compressed, custom, descriptions, discovery, hash, protobuf, types};
use registry::CustomResources;

/// What version 2 cannot say.
const UNKNOWN_IN_V2: [&str; 4] = ["anyOf", "not", "nullable", "oneOf"];

/// Definitions and paths, of built-in or of custom resources.
#[derive(Default)]
struct Parts {
    definitions: Map<String, Value>,
    paths: Map<String, Value>,
}

/// The part of the document that never changes, made once. Compressed pieces one after the other are one compressed
/// document, and so are messages.
struct BuiltIn {
    /// Everything up to the last definition.
    definitions: Bytes,
    /// The paths, without the braces around them.
    paths: Bytes,
    protobuf: Bytes,
    hash: String,
}

static BUILT_IN: LazyLock<Result<BuiltIn, String>> = LazyLock::new(|| {
    let _texts = descriptions::hold();
    let mut parts = Parts::default();
    for (group, version) in api::kinds::GROUP_VERSIONS {
        take(types::document(group, version), &mut parts, schema);
    }
    for (_, document) in discovery::documents() {
        take(document, &mut parts, schema);
    }
    let head = json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": crate::version::GIT_VERSION },
        "securityDefinitions": types::security_schemes(),
        "security": [{ "BearerToken": [] }],
    });
    let mut message = protobuf::encode(&protobuf::V2, &head).map_err(|error| error.to_string())?;
    message.extend(parts.protobuf()?);
    let head = head.to_string();
    let head = head.strip_suffix('}').unwrap_or(&head);
    let definitions = format!("{head},\"definitions\":{{{}", members(&parts.definitions));
    let paths = members(&parts.paths);
    Ok(BuiltIn {
        hash: hash(format!("{definitions}{paths}").as_bytes()),
        definitions: compressed(definitions.as_bytes()),
        paths: compressed(paths.as_bytes()),
        protobuf: compressed(&message),
    })
});

/// The document in JSON and in protobuf.
pub fn documents(custom_resources: &CustomResources) -> Result<[Document; 2], String> {
    let built_in = BUILT_IN.as_ref().map_err(Clone::clone)?;
    let mut parts = Parts::default();
    for (group, version) in custom_resources.group_versions() {
        take(
            custom::document(custom_resources, group, version),
            &mut parts,
            custom_schema,
        );
    }
    // These are among the built-in ones already.
    parts.definitions.retain(|name, _| !custom::is_common(name));
    let after = |text: String| if text.is_empty() { text } else { format!(",{text}") };
    let definitions = format!("{}}},\"paths\":{{", after(members(&parts.definitions)));
    let paths = format!("{}}}}}", after(members(&parts.paths)));
    let hash = hash(format!("{}{definitions}{paths}", built_in.hash).as_bytes());
    let json = [
        built_in.definitions.clone(),
        compressed(definitions.as_bytes()),
        built_in.paths.clone(),
        compressed(paths.as_bytes()),
    ];
    let message = [built_in.protobuf.clone(), compressed(&parts.protobuf()?)];
    Ok([Document::new(&json, &hash), Document::new(&message, &hash)])
}

impl Parts {
    fn protobuf(&self) -> Result<Vec<u8>, String> {
        let value = json!({ "definitions": self.definitions, "paths": self.paths });
        protobuf::encode(&protobuf::V2, &value).map_err(|error| error.to_string())
    }
}

/// The members of an object, without its braces.
fn members(map: &Map<String, Value>) -> String {
    let text = json!(map).to_string();
    text[1..text.len() - 1].to_owned()
}

fn take(mut document: Value, parts: &mut Parts, of_schema: fn(&mut Value)) {
    if let Value::Object(schemas) = document["components"]["schemas"].take() {
        for (name, mut found) in schemas {
            if parts.definitions.contains_key(&name) {
                continue;
            }
            of_schema(&mut found);
            parts.definitions.insert(name, found);
        }
    }
    if let Value::Object(found) = document["paths"].take() {
        for (path, mut item) in found {
            path_item(&mut item);
            parts.paths.insert(path, item);
        }
    }
}

/// A schema of a custom resource: what version 2 cannot express is left out rather than said wrongly.
fn custom_schema(found: &mut Value) {
    if found["x-kubernetes-preserve-unknown-fields"] == true {
        // Clients take what a schema of version 2 names for all there is.
        let kind = found["x-kubernetes-group-version-kind"].take();
        *found = json!({ "type": "object", "x-kubernetes-group-version-kind": kind });
        return;
    }
    walk(found, &mut |found| {
        let Some(map) = found.as_object_mut() else { return };
        let is_reference = map.get("allOf").is_some_and(|all| all[0].get("$ref").is_some());
        if !is_reference {
            map.remove("allOf");
        }
        let nullable = map.get("nullable") == Some(&Value::Bool(true));
        let preserves = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        map.remove("default");
        if nullable || preserves {
            for field in ["type", "items", "properties", "additionalProperties", "required"] {
                map.remove(field);
            }
        }
    });
    schema(found);
}

fn schema(found: &mut Value) {
    walk(found, &mut |found| {
        let Some(map) = found.as_object_mut() else { return };
        if let Some(reference) = map.get("allOf").and_then(|all| all[0]["$ref"].as_str()) {
            let reference = reference.to_owned();
            map.remove("allOf");
            map.remove("default");
            map.insert("$ref".to_owned(), reference.into());
        }
        if let Some(Value::String(reference)) = map.get_mut("$ref") {
            *reference = reference.replace("#/components/schemas/", "#/definitions/");
        }
        if map.get("format").is_some_and(|format| format == "int-or-string") {
            map.insert("type".to_owned(), "string".into());
        }
        for field in UNKNOWN_IN_V2 {
            map.remove(field);
        }
    });
}

/// Visits a schema and all schemas below it.
fn walk(found: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    visit(found);
    if let Some(properties) = found.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| walk(property, visit));
    }
    for field in ["items", "additionalProperties"] {
        if let Some(below) = found.get_mut(field).filter(|below| below.is_object()) {
            walk(below, visit);
        }
    }
}

fn path_item(item: &mut Value) {
    let Some(operations) = item.as_object_mut() else { return };
    for (method, operation) in operations.iter_mut() {
        if method == "parameters" {
            parameters(operation);
            continue;
        }
        let body = operation["requestBody"].take();
        if let Some(operation) = operation.as_object_mut() {
            operation.remove("requestBody");
        }
        if let Some(of_operation) = operation.get_mut("parameters") {
            parameters(of_operation);
        }
        if body.is_object() {
            let mut of_body = body["content"]["application/json"]["schema"].clone();
            if of_body.is_null() {
                of_body = json!({ "type": "object" });
            }
            schema(&mut of_body);
            let parameter = json!({ "name": "body", "in": "body", "required": true, "schema": of_body });
            if let Some(list) = operation["parameters"].as_array_mut() {
                list.push(parameter);
            }
            let types: Vec<&String> = body["content"].as_object().into_iter().flat_map(Map::keys).collect();
            operation["consumes"] = json!(types);
        }
        operation["produces"] = responses(&mut operation["responses"]);
        operation["schemes"] = json!(["https"]);
    }
}

fn parameters(list: &mut Value) {
    for parameter in list.as_array_mut().into_iter().flatten() {
        let of_value = parameter["schema"].take();
        if let Some(parameter) = parameter.as_object_mut() {
            parameter.remove("schema");
            parameter.insert("type".to_owned(), of_value["type"].clone());
            parameter.insert("uniqueItems".to_owned(), true.into());
        }
    }
}

/// Brings the responses into their form of version 2, and says which media types they have.
fn responses(found: &mut Value) -> Value {
    let mut produced = Vec::new();
    for response in found.as_object_mut().into_iter().flat_map(|found| found.values_mut()) {
        let content = response["content"].take();
        if let Some(response) = response.as_object_mut() {
            response.remove("content");
        }
        let content = content.as_object().into_iter().flatten();
        for (media_type, described) in content {
            let mut of_answer = described["schema"].clone();
            schema(&mut of_answer);
            response["schema"] = of_answer;
            produced.push(media_type.clone());
        }
    }
    produced.into()
}
