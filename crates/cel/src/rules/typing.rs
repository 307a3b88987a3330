//! Schemas as types, and JSON as values of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::functions::time::{parse, parse_duration};
use crate::parser::RESERVED;
use crate::types::ObjectType;
use crate::{Key, Type, Value};

/// The type of values that fit a schema. The root of an object has a name and a kind whatever the schema says.
pub fn type_of(schema: &Json, root: bool) -> Type {
    if schema["x-kubernetes-int-or-string"] == true {
        return Type::Dyn;
    }
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => Type::Bool,
        "integer" => Type::Int,
        "number" => Type::Double,
        "string" => match schema["format"].as_str().unwrap_or_default() {
            "byte" => Type::Bytes,
            "date" | "date-time" => Type::Timestamp,
            "duration" => Type::Duration,
            _ => Type::String,
        },
        "array" => Type::list(type_of(&schema["items"], false)),
        "object" if schema["additionalProperties"].is_object() => {
            Type::map(Type::String, type_of(&schema["additionalProperties"], false))
        }
        "object" if schema["properties"].is_object() || root => object_type(schema, root),
        _ => Type::Dyn,
    }
}

fn object_type(schema: &Json, root: bool) -> Type {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut fields: BTreeMap<String, Type> = properties
        .map(|(name, property)| (escape(name), type_of(property, false)))
        .collect();
    if root || schema["x-kubernetes-embedded-resource"] == true {
        let metadata = Type::object("metadata", [("name", Type::String), ("generateName", Type::String)]);
        fields.insert("metadata".to_owned(), metadata);
        fields.insert("apiVersion".to_owned(), Type::String);
        fields.insert("kind".to_owned(), Type::String);
    }
    let name = "object".to_owned();
    Type::Object(Arc::new(ObjectType { name, fields }))
}

/// A JSON value as the schema means it.
pub fn value_of(json: &Json, schema: &Json) -> Value {
    match (json, schema["type"].as_str().unwrap_or_default()) {
        (Json::Number(number), "number") => Value::Double(number.as_f64().unwrap_or_default()),
        (Json::String(text), "string") => text_of(text, schema["format"].as_str().unwrap_or_default()),
        (Json::Array(items), _) => Value::list(items.iter().map(|item| value_of(item, &schema["items"])).collect()),
        (Json::Object(fields), _) => {
            let entries = fields.iter().map(|(name, field)| match schema["properties"].get(name) {
                Some(property) => (escape(name), value_of(field, property)),
                None if schema["properties"].is_object() => (escape(name), Value::from_json(field)),
                None => (name.clone(), value_of(field, &schema["additionalProperties"])),
            });
            Value::Map(Arc::new(
                entries
                    .map(|(name, value)| (Key::String(name.as_str().into()), value))
                    .collect(),
            ))
        }
        (json, _) => Value::from_json(json),
    }
}

fn text_of(text: &str, format: &str) -> Value {
    use base64::Engine;
    let made = match format {
        "byte" => base64::engine::general_purpose::STANDARD
            .decode(text)
            .ok()
            .map(|bytes| Value::Bytes(bytes.into())),
        "date" => parse(&format!("{text}T00:00:00Z")).ok().map(Value::Timestamp),
        "date-time" => parse(text).ok().map(Value::Timestamp),
        "duration" => parse_duration(text).ok().map(Value::Duration),
        _ => None,
    };
    made.unwrap_or_else(|| Value::text(text))
}

/// The name of a property as expressions write it.
fn escape(name: &str) -> String {
    if matches!(name, "true" | "false" | "null" | "in") || RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
