//! JSON as values of the types that a schema declares.

use std::sync::Arc;

use serde_json::Value as Json;

use super::declared::escape;
use crate::functions::time::{parse, parse_duration};
use crate::{Key, Value};

/// A JSON value as the schema means it.
pub fn value_of(json: &Json, schema: &Json) -> Value {
    match (json, schema["type"].as_str().unwrap_or_default()) {
        (Json::Number(number), "number") => Value::Double(number.as_f64().unwrap_or_default()),
        (Json::String(text), "string") => text_of(text, schema["format"].as_str().unwrap_or_default()),
        (Json::Array(items), _) => Value::list(items.iter().map(|item| value_of(item, &schema["items"])).collect()),
        (Json::Object(fields), _) => {
            let entries = fields.iter().map(|(name, field)| match schema["properties"].get(name) {
                Some(property) => (escaped(name), value_of(field, property)),
                None if schema["properties"].is_object() => (escaped(name), Value::from_json(field)),
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

/// Properties whose names expressions cannot write keep them.
fn escaped(name: &str) -> String {
    escape(name).unwrap_or_else(|| name.to_owned())
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
