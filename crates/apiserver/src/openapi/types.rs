//! Schemas of built-in types, made from the fact table.

use std::collections::{BTreeMap, BTreeSet};

use api::{Resource, Value};
use schema::{Field, ListType, Shape, TypeRef, View};
use serde_json::{Map, json};

use super::{descriptions, discovery, enums, paths};

/// Kinds that belong to no resource.
const META_KINDS: [&str; 5] = [
    "meta/v1.APIGroup",
    "meta/v1.APIGroupList",
    "meta/v1.APIResourceList",
    "meta/v1.APIVersions",
    "meta/v1.Status",
];

/// The version-3 document of a built-in group and version.
pub fn document(group: &str, version: &str) -> Value {
    let _texts = descriptions::hold();
    let mut types = Types::default();
    let mut found = Map::new();
    let rows = api::kinds::all()
        .iter()
        .filter(|row| row.group == group && row.version == version);
    for resource in rows {
        types.need_resource(resource);
        paths::add(&mut found, resource);
    }
    discovery::add_version(&mut found, &mut types, group, version);
    frame(found, types.schemas())
}

/// A document of these paths, and of the schemas they refer to.
pub fn frame(paths: Map<String, Value>, schemas: Map<String, Value>) -> Value {
    let mut components = json!({ "securitySchemes": security_schemes() });
    if !schemas.is_empty() {
        components["schemas"] = schemas.into();
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": crate::version::GIT_VERSION },
        "paths": paths,
        "components": components,
    })
}

/// How clients say who they are.
pub fn security_schemes() -> Value {
    let (name, description) = ("authorization", "Bearer Token authentication");
    json!({ "BearerToken": { "type": "apiKey", "name": name, "in": "header", "description": description } })
}

/// The types a document refers to, directly or through others.
#[derive(Default)]
pub struct Types {
    /// The groups and versions of types that are kinds, by type name.
    kinds: BTreeMap<String, (String, String)>,
    seen: BTreeSet<String>,
    queue: Vec<TypeRef<'static>>,
}

impl Types {
    /// A type by its name in the fact table; the name of its component.
    pub fn need_named(&mut self, name: &str) -> Option<String> {
        let ty = schema::builtin().named(name)?;
        self.need(ty);
        Some(component_name(ty))
    }

    /// A kind and the list of it.
    pub fn need_resource(&mut self, resource: &Resource) {
        for kind in [resource.kind.to_owned(), format!("{}List", resource.kind)] {
            if let Some(ty) = schema::builtin().kind(resource.group, resource.version, &kind) {
                self.need_kind(ty, resource.group, resource.version);
            }
        }
        for ty in resource.subresources.iter().filter_map(paths::body_of) {
            self.need(ty);
        }
    }

    fn need(&mut self, ty: TypeRef<'static>) {
        if self.seen.insert(component_name(ty)) {
            self.queue.push(ty);
        }
    }

    fn need_kind(&mut self, ty: TypeRef<'static>, group: &str, version: &str) {
        let group_version = (group.to_owned(), version.to_owned());
        self.kinds.insert(ty.name.to_string(), group_version);
        self.need(ty);
    }

    pub fn schemas(mut self) -> Map<String, Value> {
        let mut schemas = Map::new();
        while let Some(ty) = self.queue.pop() {
            let schema = self.object(ty);
            schemas.insert(component_name(ty), schema);
        }
        schemas
    }

    fn object(&mut self, ty: TypeRef<'static>) -> Value {
        let name = component_name(ty);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in ty.fields() {
            if field.required || (!field.optional && !field.omit_empty && !field.pointer) {
                required.push(Value::from(&*field.name));
            }
            let mut property = annotated(self.view(field.view()), &field);
            enums::add(&mut property, &ty.name, &field.name);
            if let Some(text) = descriptions::of_field(&name, &field.name) {
                property["description"] = text.into();
            }
            properties.insert(field.name.to_string(), property);
        }
        let mut schema = json!({ "type": "object" });
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        if let Some(text) = descriptions::of_type(&name) {
            schema["description"] = text.into();
        }
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        let group_version = match self.kinds.get(&*ty.name) {
            Some((group, version)) => Some((group.as_str(), version.as_str())),
            None => META_KINDS.contains(&&*ty.name).then_some(("", "v1")),
        };
        if let Some((group, version)) = group_version {
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
    let strategies = [
        (field.patch.merge, "merge"),
        (field.patch.retain_keys, "retainKeys"),
        (field.patch.replace, "replace"),
    ];
    let strategies: Vec<&str> = strategies
        .iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, name)| *name)
        .collect();
    if !strategies.is_empty() {
        property["x-kubernetes-patch-strategy"] = strategies.join(",").into();
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
pub fn component_name(ty: TypeRef<'_>) -> String {
    let (group_version, name) = ty.name.split_once('.').unwrap_or(("", &ty.name));
    let (group, version) = group_version.split_once('/').unwrap_or((group_version, ""));
    match group {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.{version}.{name}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}"),
        "apiregistration" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{name}"),
        "metrics" => format!("io.k8s.metrics.pkg.apis.metrics.{version}.{name}"),
        group => format!("io.k8s.api.{group}.{version}.{name}"),
    }
}
