//! Documents of custom resources, made from what their definitions state.

use std::sync::LazyLock;

use api::Value;
use api::custom::{Definition, Version};
use serde_json::{Map, json};

use super::paths::{self, Components};
use super::{descriptions, types::Types};
use registry::CustomResources;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// What every document refers to.
static COMMON: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let _texts = descriptions::hold();
    let mut types = Types::default();
    for name in ["ObjectMeta", "ListMeta", "Status", "DeleteOptions"] {
        types.need_named(&format!("meta/v1.{name}"));
    }
    types.need_named("autoscaling/v1.Scale");
    types.schemas()
});

/// Whether a component belongs to every document rather than to a custom resource.
pub fn is_common(name: &str) -> bool {
    COMMON.contains_key(name)
}

/// What the fields say that every object and every list has.
static OBJECT_FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(|| described_fields("Pod", OBJECT_META));
static LIST_FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(|| described_fields("PodList", LIST_META));

/// The version-3 document of a group and version.
pub fn document(custom_resources: &CustomResources, group: &str, version: &str) -> Value {
    let mut schemas = COMMON.clone();
    let mut found = Map::new();
    for served in custom_resources
        .served()
        .filter(|served| (served.resource.group, served.resource.version) == (group, version))
    {
        let Some(custom) = &served.custom else { continue };
        let (definition, version) = (&*custom.definition, custom.version());
        let name = component_name(definition, version);
        schemas.insert(name.clone(), kind_schema(definition, version));
        let components = Components {
            kind: name,
            list: list_name(definition, version),
        };
        schemas.insert(components.list.clone(), list_schema(definition, version));
        paths::add_custom(&mut found, served.resource, components);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes CRD Swagger", "version": "v0.1.0" },
        "paths": found,
        "components": { "schemas": schemas },
    })
}

/// `com.example.v1.Foo`: the group's domain from its end.
pub fn component_name(definition: &Definition, version: &Version) -> String {
    format!("{}.{}.{}", reversed(&definition.group), version.name, definition.kind)
}

pub fn list_name(definition: &Definition, version: &Version) -> String {
    format!(
        "{}.{}.{}",
        reversed(&definition.group),
        version.name,
        definition.list_kind
    )
}

fn reversed(group: &str) -> String {
    group.split('.').rev().collect::<Vec<_>>().join(".")
}

/// The schema with the fields that every object has.
pub fn kind_schema(definition: &Definition, version: &Version) -> Value {
    let mut schema = match version.schema.schema() {
        stated @ Value::Object(_) => stated,
        _ => json!({ "type": "object" }),
    };
    add_embedded(&mut schema);
    add_object_fields(&mut schema);
    schema["x-kubernetes-group-version-kind"] =
        json!([{ "group": definition.group, "version": version.name, "kind": definition.kind }]);
    add_selectable(&mut schema, version);
    schema
}

pub fn list_schema(definition: &Definition, version: &Version) -> Value {
    let item = format!("#/components/schemas/{}", component_name(definition, version));
    let mut schema = json!({
        "description": format!("{} is a list of {}", definition.list_kind, definition.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {
                "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", definition.plural),
                "type": "array", "items": { "$ref": item },
            },
        },
        "x-kubernetes-group-version-kind":
            [{ "group": definition.group, "version": version.name, "kind": definition.list_kind }],
    });
    add_fields(&mut schema, &LIST_FIELDS);
    add_selectable(&mut schema, version);
    schema
}

fn add_selectable(schema: &mut Value, version: &Version) {
    let fields: Vec<Value> = version
        .selectable
        .iter()
        .map(|(path, _)| json!({ "fieldPath": path }))
        .collect();
    if !fields.is_empty() {
        schema["x-kubernetes-selectable-fields"] = fields.into();
    }
}

fn add_object_fields(schema: &mut Value) {
    add_fields(schema, &OBJECT_FIELDS);
}

fn add_fields(schema: &mut Value, fields: &Map<String, Value>) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.extend(fields.clone());
    }
}

/// The fields of every kind, in the words that a built-in one has for them.
fn described_fields(kind: &str, metadata: &str) -> Map<String, Value> {
    let _texts = descriptions::hold();
    let mut fields = Map::new();
    fields.insert("apiVersion".to_owned(), json!({ "type": "string" }));
    fields.insert("kind".to_owned(), json!({ "type": "string" }));
    let reference = json!({ "allOf": [{ "$ref": format!("#/components/schemas/{metadata}") }] });
    fields.insert("metadata".to_owned(), reference);
    for (name, field) in &mut fields {
        if let Some(text) = descriptions::of_field(&format!("io.k8s.api.core.v1.{kind}"), name) {
            field["description"] = text.into();
        }
    }
    fields
}

/// Objects inside of the object have those fields too.
fn add_embedded(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(add_embedded_here);
    }
    for field in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(field).filter(|below| below.is_object()) {
            add_embedded_here(below);
        }
    }
}

fn add_embedded_here(schema: &mut Value) {
    add_embedded(schema);
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        add_object_fields(schema);
    }
}
