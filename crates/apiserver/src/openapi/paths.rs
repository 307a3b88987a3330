//! The requests that a document lists: what clients look up before they use an option.

use api::{Resource, Subresource, Value, Verb};
use schema::TypeRef;
use serde_json::{Map, json};

use super::types::component_name;
use super::words;

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

const PATCHES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];
/// Only for built-in kinds, whose types say how their lists merge. kubectl chooses by what is offered.
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// Subresources that switch protocols or pass requests on, and those whose answer is a text.
const CONNECTS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
const TEXTS: [&str; 1] = ["log"];
/// Every method is passed on.
const PROXIED: [&str; 7] = ["delete", "get", "head", "options", "patch", "post", "put"];

/// The components that describe a kind and the list of it.
pub struct Components {
    pub kind: String,
    pub list: String,
}

/// What an operation is about.
struct Subject<'a> {
    resource: &'a Resource,
    /// Whether a CustomResourceDefinition defines it.
    is_custom: bool,
    /// The component of its bodies; without one they are texts.
    component: Option<String>,
    /// The group, version and kind of its bodies.
    kind: (&'a str, &'a str, &'a str),
    /// The subresource, if it is one.
    part: &'a str,
    /// What the operation's name ends in.
    suffix: String,
}

/// Adds the paths of a built-in resource and of its subresources, in the form of version 3.
pub fn add(paths: &mut Map<String, Value>, resource: &Resource) {
    let component = |kind: &str| {
        let found = schema::builtin().kind(resource.group, resource.version, kind);
        found.map(component_name).unwrap_or_default()
    };
    let components = Components {
        kind: component(resource.kind),
        list: component(&format!("{}List", resource.kind)),
    };
    add_with(paths, resource, components, false);
}

/// The same for a custom resource, with the components that describe its kind.
pub fn add_custom(paths: &mut Map<String, Value>, resource: &Resource, components: Components) {
    add_with(paths, resource, components, true);
}

fn add_with(paths: &mut Map<String, Value>, resource: &Resource, components: Components, is_custom: bool) {
    let namespace = resource.namespaced.then_some("{namespace}");
    let kind = (resource.group, resource.version, resource.kind);
    let subject = |component: &str, suffix: &str| Subject {
        resource,
        is_custom,
        component: Some(component.to_owned()),
        kind,
        part: "",
        suffix: suffix.to_owned(),
    };
    let one = subject(&components.kind, "");
    let mut collection = operations(&one, resource.verbs, false);
    if resource.verbs.contains(&Verb::List) {
        let all = operation(&subject(&components.list, ""), "get", "list");
        collection.insert("get".to_owned(), all);
        if resource.namespaced {
            let everywhere = operation(&subject(&components.list, "ForAllNamespaces"), "get", "list");
            let item = Map::from_iter([("get".to_owned(), everywhere)]);
            paths.insert(resource.path(None, None), with_parameters(item, &[]));
        }
    }
    let of_namespace: &[&str] = if resource.namespaced { &["namespace"] } else { &[] };
    paths.insert(
        resource.path(namespace, None),
        with_parameters(collection, of_namespace),
    );
    let named: &[&str] = if resource.namespaced {
        &["name", "namespace"]
    } else {
        &["name"]
    };
    let path = resource.path(namespace, Some("{name}"));
    let item = operations(&one, resource.verbs, true);
    if !item.is_empty() {
        paths.insert(path.clone(), with_parameters(item, named));
    }
    for subresource in resource.subresources {
        add_subresource(paths, &path, named, &one, subresource);
    }
}

/// The type of a subresource's objects where it differs from that of its parent.
pub fn body_of(subresource: &Subresource) -> Option<TypeRef<'static>> {
    let (group, version, kind) = subresource.body.filter(|_| !is_text(subresource))?;
    schema::builtin().kind(group, version, kind)
}

fn is_text(subresource: &Subresource) -> bool {
    TEXTS.contains(&subresource.name) || CONNECTS.contains(&subresource.name)
}

fn add_subresource(
    paths: &mut Map<String, Value>,
    path: &str,
    named: &[&str],
    parent: &Subject<'_>,
    subresource: &Subresource,
) {
    let path = format!("{path}/{}", subresource.name);
    let component = match subresource.body {
        _ if is_text(subresource) => None,
        Some(_) => body_of(subresource).map(component_name),
        None => parent.component.clone(),
    };
    let subject = |more: &str| Subject {
        is_custom: parent.is_custom,
        resource: parent.resource,
        component: component.clone(),
        kind: subresource.body.unwrap_or(parent.kind),
        part: subresource.name,
        suffix: format!("{}{more}", capitalised(subresource.name)),
    };
    if !CONNECTS.contains(&subresource.name) {
        let mut item = operations(&subject(""), subresource.verbs, true);
        if subresource.verbs.contains(&Verb::Create) {
            item.insert("post".to_owned(), operation(&subject(""), "post", "post"));
        }
        paths.insert(path, with_parameters(item, named));
        return;
    }
    let connects = |subject: Subject<'_>| -> Map<String, Value> {
        let methods: &[&str] = if subresource.name == "proxy" {
            &PROXIED
        } else {
            &["get", "post"]
        };
        let each = methods
            .iter()
            .map(|method| ((*method).to_owned(), operation(&subject, method, "connect")));
        each.collect()
    };
    paths.insert(path.clone(), with_parameters(connects(subject("")), named));
    if subresource.name == "proxy" {
        let deeper = connects(subject("WithPath"));
        let named: Vec<&str> = named.iter().copied().chain(["path"]).collect();
        paths.insert(format!("{path}/{{path}}"), with_parameters(deeper, &named));
    }
}

fn operations(subject: &Subject<'_>, verbs: &[Verb], named: bool) -> Map<String, Value> {
    let mut operations = Map::new();
    for verb in verbs {
        let (method, action) = match (verb, named) {
            (Verb::Create, false) => ("post", "post"),
            (Verb::DeleteCollection, false) => ("delete", "deletecollection"),
            (Verb::Get, true) => ("get", "get"),
            (Verb::Update, true) => ("put", "put"),
            (Verb::Patch, true) => ("patch", "patch"),
            (Verb::Delete, true) => ("delete", "delete"),
            _ => continue,
        };
        operations.insert(method.to_owned(), operation(subject, method, action));
    }
    operations
}

fn operation(subject: &Subject<'_>, method: &str, action: &str) -> Value {
    let (group, version, kind) = subject.kind;
    let described = match &subject.component {
        Some(component) => json!({ "$ref": format!("#/components/schemas/{component}") }),
        None => json!({ "type": "string" }),
    };
    let body = json!({ "application/json": { "schema": described } });
    let answer = json!({ "application/json": { "schema": described }, "application/yaml": { "schema": described } });
    let mut operation = json!({
        "operationId": operation_id(subject, method, action),
        "description": words::of_operation(action, method, subject.resource.kind, subject.part),
        "tags": [tag(subject.resource.group, subject.resource.version)],
        "responses": { "200": { "description": "OK", "content": answer }, "401": { "description": "Unauthorized" } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind },
    });
    let options: Vec<Value> = match action {
        "list" => LIST_OPTIONS.iter().map(|(name, ty)| parameter(name, ty)).collect(),
        "get" => vec![parameter("pretty", "string")],
        "connect" => Vec::new(),
        _ => WRITE_OPTIONS.iter().map(|name| parameter(name, "string")).collect(),
    };
    operation["parameters"] = options.into();
    match action {
        "post" | "put" => operation["requestBody"] = json!({ "required": true, "content": body }),
        "patch" => {
            let any = json!({ "schema": { "type": "object" } });
            let strategic = (!subject.is_custom).then_some(STRATEGIC_MERGE);
            let content: Map<String, Value> = PATCHES
                .into_iter()
                .chain(strategic)
                .map(|name| (name.to_owned(), any.clone()))
                .collect();
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        _ => {}
    }
    operation
}

fn parameter(name: &str, ty: &str) -> Value {
    json!({ "name": name, "in": "query", "schema": { "type": ty, "uniqueItems": true } })
}

/// Adds the parameters that stand in the path itself.
fn with_parameters(mut item: Map<String, Value>, names: &[&str]) -> Value {
    let of_path = |name: &&str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "uniqueItems": true } });
    if !names.is_empty() {
        let parameters: Vec<Value> = names.iter().map(of_path).collect();
        item.insert("parameters".to_owned(), parameters.into());
    }
    item.into()
}

/// `createCoreV1NamespacedPod`, `connectCoreV1GetNamespacedPodExec`.
fn operation_id(subject: &Subject<'_>, method: &str, action: &str) -> String {
    let resource = subject.resource;
    let verb = match action {
        "post" => "create",
        "put" => "replace",
        "get" => "read",
        "deletecollection" => "delete",
        other => other,
    };
    let method = match action {
        "connect" => capitalised(method),
        "deletecollection" => "Collection".to_owned(),
        _ => String::new(),
    };
    let everywhere = subject.suffix == "ForAllNamespaces";
    let scope = if resource.namespaced && !everywhere {
        "Namespaced"
    } else {
        ""
    };
    let (tag, suffix) = (capitalised(&tag(resource.group, resource.version)), &subject.suffix);
    format!("{verb}{tag}{method}{scope}{}{suffix}", resource.kind)
}

/// `core_v1`.
pub fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", group_tag(group))
}

/// `rbacAuthorization`.
pub fn group_tag(group: &str) -> String {
    let group = match group {
        "" => "core",
        group => group.strip_suffix(".k8s.io").unwrap_or(group),
    };
    let (first, rest) = group.split_at(group.find(['.', '-']).unwrap_or(group.len()));
    format!("{first}{}", capitalised(&rest.replace(['.', '-'], "_")))
}

pub fn capitalised(tag: &str) -> String {
    tag.split('_')
        .map(|word| {
            let mut characters = word.chars();
            let first = characters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(characters).collect::<String>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use api::kinds::deployment::DEPLOYMENT;
    use api::kinds::pod::POD;

    fn paths_of(resources: &[&Resource]) -> Map<String, Value> {
        let mut paths = Map::new();
        resources.iter().for_each(|resource| add(&mut paths, resource));
        paths
    }

    #[test]
    fn subresources_have_operations_and_bodies_of_their_own() {
        let paths = paths_of(&[&POD, &DEPLOYMENT]);
        let pod = "/api/v1/namespaces/{namespace}/pods/{name}";
        let scale = &paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"];
        assert_eq!(scale["put"]["operationId"], "replaceAppsV1NamespacedDeploymentScale");
        assert_eq!(scale["put"]["x-kubernetes-group-version-kind"]["kind"], "Scale");
        let evict = &paths[&format!("{pod}/eviction")]["post"];
        assert_eq!(evict["operationId"], "createCoreV1NamespacedPodEviction");
        let proxy = &paths[&format!("{pod}/proxy/{{path}}")];
        assert_eq!(
            proxy["options"]["operationId"],
            "connectCoreV1OptionsNamespacedPodProxyWithPath"
        );
        let emptied = &paths["/api/v1/namespaces/{namespace}/pods"]["delete"];
        assert_eq!(emptied["operationId"], "deleteCoreV1CollectionNamespacedPod");
        let all = &paths["/api/v1/pods"]["get"];
        assert_eq!(all["operationId"], "listCoreV1PodForAllNamespaces");
    }

    #[test]
    fn no_two_operations_have_the_same_name() {
        let paths = paths_of(api::kinds::all());
        let mut seen = HashSet::new();
        for item in paths.values() {
            for operation in item.as_object().into_iter().flat_map(Map::values) {
                if let Some(name) = operation["operationId"].as_str() {
                    assert!(seen.insert(name.to_owned()), "{name} is there twice");
                }
            }
        }
    }
}
