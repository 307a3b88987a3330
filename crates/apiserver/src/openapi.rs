//! OpenAPI documents made from the schema: enough for `kubectl explain`, validation and patch support.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use api::{Error, Reason, Resource, Value};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use schema::{Field, ListType, Shape, TypeRef, View};
use serde_json::{Map, json};

use crate::body::Body;
use crate::respond;

/// Every version-3 document by its path below `/openapi/v3/`, made when first asked for.
static DOCUMENTS: LazyLock<BTreeMap<String, Bytes>> = LazyLock::new(|| {
    let versions = api::kinds::GROUP_VERSIONS.iter();
    versions
        .map(|(group, version)| (path_of(group, version), make(group, version).to_string().into()))
        .collect()
});

pub fn index() -> Response<Body> {
    let paths: Map<String, Value> = DOCUMENTS
        .iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={:016X}", hash(document));
            (path.clone(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    respond::json(StatusCode::OK, &json!({ "paths": paths }))
}

pub fn document(path: &str) -> Option<Response<Body>> {
    DOCUMENTS
        .get(path)
        .map(|document| respond::bytes(StatusCode::OK, "application/json", document.clone()))
}

/// Version 2 is a fallback of older clients.
pub fn v2(_headers: &HeaderMap) -> Result<Response<Body>, Error> {
    Err(Error::new(
        Reason::NotAcceptable,
        "OpenAPI v2 is not served yet; use /openapi/v3",
    ))
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn make(group: &str, version: &str) -> Value {
    let mut types = Types::default();
    let mut paths = Map::new();
    let rows = api::kinds::all()
        .iter()
        .filter(|row| row.group == group && row.version == version);
    for resource in rows {
        let Some(ty) = schema::builtin().kind(resource.group, resource.version, resource.kind) else {
            continue;
        };
        types.need_kind(ty, resource);
        if let Some(list) = schema::builtin().kind(resource.group, resource.version, &format!("{}List", resource.kind))
        {
            types.need_kind(list, resource);
        }
        add_paths(&mut paths, resource);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": crate::nonresource::GIT_VERSION },
        "paths": paths,
        "components": { "schemas": types.schemas() },
    })
}

/// The operations clients look for: those that write, with their options.
fn add_paths(paths: &mut Map<String, Value>, resource: &Resource) {
    let namespace = resource.namespaced.then_some("{namespace}");
    let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
        .iter()
        .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } }))
        .collect();
    let operation = |action: &str| {
        json!({
            "parameters": parameters,
            "responses": { "200": { "description": "OK" } },
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
        })
    };
    let mut collection = Map::new();
    let mut object = Map::new();
    for verb in resource.verbs {
        match verb {
            api::Verb::Create => collection.insert("post".to_owned(), operation("post")),
            api::Verb::List => collection.insert("get".to_owned(), operation("list")),
            api::Verb::Get => object.insert("get".to_owned(), operation("get")),
            api::Verb::Update => object.insert("put".to_owned(), operation("put")),
            api::Verb::Patch => object.insert("patch".to_owned(), operation("patch")),
            api::Verb::Delete => object.insert("delete".to_owned(), operation("delete")),
            _ => None,
        };
    }
    paths.insert(resource.path(namespace, None), Value::Object(collection));
    if !object.is_empty() {
        paths.insert(resource.path(namespace, Some("{name}")), Value::Object(object));
    }
}

/// The types a document refers to, directly or through others.
#[derive(Default)]
struct Types {
    /// The groups and versions of types that are kinds, by type name.
    kinds: BTreeMap<String, (String, String)>,
    seen: BTreeSet<String>,
    queue: Vec<TypeRef<'static>>,
}

impl Types {
    fn need(&mut self, ty: TypeRef<'static>) {
        if self.seen.insert(component_name(ty)) {
            self.queue.push(ty);
        }
    }

    fn need_kind(&mut self, ty: TypeRef<'static>, resource: &Resource) {
        self.kinds.insert(
            ty.name.to_string(),
            (resource.group.to_owned(), resource.version.to_owned()),
        );
        self.need(ty);
    }

    fn schemas(mut self) -> Map<String, Value> {
        let mut schemas = Map::new();
        while let Some(ty) = self.queue.pop() {
            let schema = self.object(ty);
            schemas.insert(component_name(ty), schema);
        }
        schemas
    }

    fn object(&mut self, ty: TypeRef<'static>) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in ty.fields() {
            if field.required || (!field.optional && !field.omit_empty && !field.pointer) {
                required.push(Value::from(&*field.name));
            }
            let property = annotated(self.view(field.view()), &field);
            properties.insert(field.name.to_string(), property);
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if let Some((group, version)) = self.kinds.get(&*ty.name) {
            let kind = json!({ "group": group, "version": version, "kind": ty.short_name() });
            schema["x-kubernetes-group-version-kind"] = json!([kind]);
        }
        schema
    }

    fn view(&mut self, view: View<'static>) -> Value {
        match view {
            View::Struct(ty) => {
                self.need(ty);
                json!({ "allOf": [{ "$ref": format!("#/components/schemas/{}", component_name(ty)) }], "default": {} })
            }
            View::List(item) => json!({ "type": "array", "items": self.view(item.view()) }),
            View::Map(value) => json!({ "type": "object", "additionalProperties": self.view(value.view()) }),
            View::Leaf(shape) => leaf(shape),
            View::Raw(_) | View::SchemaOr(..) => json!({ "x-kubernetes-preserve-unknown-fields": true }),
        }
    }
}

/// How lists and maps merge, which clients need to patch them.
fn annotated(mut property: Value, field: &Field) -> Value {
    if field.patch.merge {
        property["x-kubernetes-patch-strategy"] = "merge".into();
    }
    if let Some(key) = &field.merge_key {
        property["x-kubernetes-patch-merge-key"] = key.as_ref().into();
    }
    let list_type = match field.list {
        ListType::Atomic => "atomic",
        ListType::Set => "set",
        ListType::Map => "map",
    };
    if property["type"] == "array" {
        property["x-kubernetes-list-type"] = list_type.into();
        if !field.list_keys.is_empty() {
            property["x-kubernetes-list-map-keys"] = field.list_keys.iter().map(|key| key.to_string()).collect();
        }
    }
    property
}

fn leaf(shape: Shape) -> Value {
    match shape {
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Int32 => json!({ "type": "integer", "format": "int32" }),
        Shape::Int64 => json!({ "type": "integer", "format": "int64" }),
        Shape::Float64 => json!({ "type": "number", "format": "double" }),
        Shape::Bytes => json!({ "type": "string", "format": "byte" }),
        Shape::Time | Shape::MicroTime => json!({ "type": "string", "format": "date-time" }),
        Shape::IntOrString => {
            json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
        }
        _ => json!({ "type": "string" }),
    }
}

/// `io.k8s.api.core.v1.Pod`, as clients know the components.
fn component_name(ty: TypeRef<'_>) -> String {
    let (group_version, name) = ty.name.split_once('.').unwrap_or(("", &ty.name));
    let (group, version) = group_version.split_once('/').unwrap_or((group_version, ""));
    match group {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.{version}.{name}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}"),
        "apiregistration" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{name}"),
        group => format!("io.k8s.api.{group}.{version}.{name}"),
    }
}

fn hash(document: &[u8]) -> u64 {
    document.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
