//! The requests that a document lists: what clients look up before they use an option.

use api::{Resource, Value, Verb};
use serde_json::{Map, json};

use super::types::component_name;

/// The options of requests that write.
const WRITE_OPTIONS: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "pretty"];
/// The options of requests that list or watch.
const LIST_OPTIONS: [(&str, &str); 8] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Adds the paths of a resource and of its subresources, in the form of version 3.
pub fn add(paths: &mut Map<String, Value>, resource: &Resource) {
    let component = schema::builtin()
        .kind(resource.group, resource.version, resource.kind)
        .map(component_name);
    add_with(paths, resource, component.as_deref().unwrap_or_default());
}

/// The same, with the component that describes the kind.
pub fn add_with(paths: &mut Map<String, Value>, resource: &Resource, component: &str) {
    let namespace = resource.namespaced.then_some("{namespace}");
    let collection = item(resource, component, resource.verbs, false);
    paths.insert(
        resource.path(namespace, None),
        with_parameters(collection, namespace, false),
    );
    let one = item(resource, component, resource.verbs, true);
    if !one.is_empty() {
        let path = resource.path(namespace, Some("{name}"));
        paths.insert(path.clone(), with_parameters(one, namespace, true));
        for subresource in resource.subresources.iter().filter(|one| one.name != "proxy") {
            let operations = item(resource, component, subresource.verbs, true);
            let path = format!("{path}/{}", subresource.name);
            paths.insert(path, with_parameters(operations, namespace, true));
        }
    }
}

fn item(resource: &Resource, component: &str, verbs: &[Verb], named: bool) -> Map<String, Value> {
    let mut operations = Map::new();
    for verb in verbs {
        let (method, action) = match (verb, named) {
            (Verb::Create, false) => ("post", "post"),
            (Verb::List, false) => ("get", "list"),
            (Verb::DeleteCollection, false) => ("delete", "deletecollection"),
            (Verb::Get, true) => ("get", "get"),
            (Verb::Update, true) => ("put", "put"),
            (Verb::Patch, true) => ("patch", "patch"),
            (Verb::Delete, true) => ("delete", "delete"),
            _ => continue,
        };
        operations.insert(method.to_owned(), operation(resource, component, method, action));
    }
    operations
}

fn operation(resource: &Resource, component: &str, method: &str, action: &str) -> Value {
    let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
    let reference = json!({ "$ref": format!("#/components/schemas/{component}") });
    let content = json!({ "application/json": { "schema": reference } });
    let mut operation = json!({
        "operationId": operation_id(resource, action),
        "tags": [tag(resource)],
        "responses": { "200": { "description": "OK", "content": content } },
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
    });
    let options: Vec<Value> = match action {
        "list" => LIST_OPTIONS.iter().map(|(name, ty)| parameter(name, ty)).collect(),
        "get" => vec![parameter("pretty", "string")],
        _ => WRITE_OPTIONS.iter().map(|name| parameter(name, "string")).collect(),
    };
    operation["parameters"] = options.into();
    match method {
        "post" | "put" => operation["requestBody"] = json!({ "required": true, "content": content }),
        "patch" => {
            let any = json!({ "schema": { "type": "object" } });
            let content: Map<String, Value> = PATCHES.iter().map(|name| ((*name).to_owned(), any.clone())).collect();
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        _ => {}
    }
    operation
}

fn parameter(name: &str, ty: &str) -> Value {
    json!({ "name": name, "in": "query", "schema": { "type": ty, "uniqueItems": true } })
}

fn with_parameters(operations: Map<String, Value>, namespace: Option<&str>, named: bool) -> Value {
    let of_path = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "uniqueItems": true } });
    let mut parameters = Vec::new();
    if named {
        parameters.push(of_path("name"));
    }
    if namespace.is_some() {
        parameters.push(of_path("namespace"));
    }
    let mut item = operations;
    if !parameters.is_empty() {
        item.insert("parameters".to_owned(), parameters.into());
    }
    item.into()
}

/// `createCoreV1NamespacedPod`.
fn operation_id(resource: &Resource, action: &str) -> String {
    let verb = match action {
        "post" => "create",
        "put" => "replace",
        "get" => "read",
        "deletecollection" => "deleteCollection",
        other => other,
    };
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    format!("{verb}{}{scope}{}", capitalised(&tag(resource)), resource.kind)
}

/// `core_v1`.
fn tag(resource: &Resource) -> String {
    let group = match resource.group {
        "" => "core",
        group => group.strip_suffix(".k8s.io").unwrap_or(group),
    };
    format!("{}_{}", group.replace(['.', '-'], "_"), resource.version)
}

fn capitalised(tag: &str) -> String {
    tag.split('_')
        .map(|word| {
            let mut characters = word.chars();
            let first = characters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(characters).collect::<String>()
        })
        .collect()
}
