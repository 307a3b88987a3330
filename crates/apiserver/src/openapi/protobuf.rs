//! Version 2 in protobuf, the form in which kubectl and client-go fetch it.
//!
//! Each message is a table of the JSON members it takes and the tags they have; members that start with `x-` become
//! vendor extensions, whose values are YAML texts.

use api::Value;

/// A member that has no place in the messages.
#[derive(Debug, thiserror::Error)]
#[error("{message} has no member {member:?}")]
pub struct Unknown {
    message: &'static str,
    member: String,
}

/// How a member stands in its message.
enum Kind {
    Text,
    Texts,
    Bool,
    /// A whole number.
    Integer,
    /// A floating-point number.
    Double,
    /// Any value, as YAML.
    Any,
    Anys,
    Message(&'static Message),
    Messages(&'static Message),
    /// A map whose entries are `{name = 1, value = 2}` in the field 1 of a message of its own.
    Named(&'static Message),
    /// The same, with the entries right in the message under the tag.
    Entries(&'static Message),
    /// A text or a list of texts in the field 1 of a message.
    TextList,
    /// A schema or a boolean: `{schema = 1, boolean = 2}`.
    SchemaOrBool,
    /// A schema in the field 1 of a message.
    WrappedSchema,
    /// Parameters of a path or operation.
    Parameters,
    /// Responses by code.
    Responses,
    /// Security requirements, each a map from a name to texts.
    Requirements,
    /// Security definitions by name.
    SecurityDefinitions,
}

/// A message: its name for errors, its members, and the tag of its vendor extensions.
struct Message {
    name: &'static str,
    members: &'static [(&'static str, u32, Kind)],
    extensions: u32,
}

static DOCUMENT: Message = Message {
    name: "Document",
    members: &[
        ("swagger", 1, Kind::Text),
        ("info", 2, Kind::Message(&INFO)),
        ("paths", 8, Kind::Message(&PATHS)),
        ("definitions", 9, Kind::Named(&SCHEMA)),
        ("security", 12, Kind::Requirements),
        ("securityDefinitions", 13, Kind::SecurityDefinitions),
    ],
    extensions: 16,
};

static INFO: Message = Message {
    name: "Info",
    members: &[("title", 1, Kind::Text), ("version", 2, Kind::Text)],
    extensions: 7,
};

/// Its members are paths, whatever they are called.
static PATHS: Message = Message {
    name: "Paths",
    members: &[("", 2, Kind::Entries(&PATH_ITEM))],
    extensions: 1,
};

static PATH_ITEM: Message = Message {
    name: "PathItem",
    members: &[
        ("get", 2, Kind::Message(&OPERATION)),
        ("put", 3, Kind::Message(&OPERATION)),
        ("post", 4, Kind::Message(&OPERATION)),
        ("delete", 5, Kind::Message(&OPERATION)),
        ("options", 6, Kind::Message(&OPERATION)),
        ("head", 7, Kind::Message(&OPERATION)),
        ("patch", 8, Kind::Message(&OPERATION)),
        ("parameters", 9, Kind::Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    name: "Operation",
    members: &[
        ("tags", 1, Kind::Texts),
        ("summary", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, Kind::Texts),
        ("consumes", 7, Kind::Texts),
        ("parameters", 8, Kind::Parameters),
        ("responses", 9, Kind::Responses),
        ("schemes", 10, Kind::Texts),
        ("deprecated", 11, Kind::Bool),
    ],
    extensions: 13,
};

static BODY_PARAMETER: Message = Message {
    name: "BodyParameter",
    members: &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Bool),
        ("schema", 5, Kind::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: Message = Message {
    name: "QueryParameterSubSchema",
    members: &[
        ("required", 1, Kind::Bool),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("format", 7, Kind::Text),
        ("uniqueItems", 20, Kind::Bool),
    ],
    extensions: 23,
};

static PATH_PARAMETER: Message = Message {
    name: "PathParameterSubSchema",
    members: &[
        ("required", 1, Kind::Bool),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("format", 6, Kind::Text),
        ("uniqueItems", 19, Kind::Bool),
    ],
    extensions: 22,
};

static RESPONSE: Message = Message {
    name: "Response",
    members: &[("description", 1, Kind::Text), ("schema", 2, Kind::WrappedSchema)],
    extensions: 5,
};

static API_KEY: Message = Message {
    name: "ApiKeySecurity",
    members: &[
        ("type", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("description", 4, Kind::Text),
    ],
    extensions: 5,
};

static EXTERNAL_DOCS: Message = Message {
    name: "ExternalDocs",
    members: &[("description", 1, Kind::Text), ("url", 2, Kind::Text)],
    extensions: 3,
};

static SCHEMA: Message = Message {
    name: "Schema",
    members: &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::Any),
        ("multipleOf", 6, Kind::Double),
        ("maximum", 7, Kind::Double),
        ("exclusiveMaximum", 8, Kind::Bool),
        ("minimum", 9, Kind::Double),
        ("exclusiveMinimum", 10, Kind::Bool),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("uniqueItems", 16, Kind::Bool),
        ("maxProperties", 17, Kind::Integer),
        ("minProperties", 18, Kind::Integer),
        ("required", 19, Kind::Texts),
        ("enum", 20, Kind::Anys),
        ("additionalProperties", 21, Kind::SchemaOrBool),
        ("type", 22, Kind::TextList),
        ("items", 23, Kind::WrappedSchema),
        ("allOf", 24, Kind::Messages(&SCHEMA)),
        ("properties", 25, Kind::Named(&SCHEMA)),
        ("externalDocs", 29, Kind::Message(&EXTERNAL_DOCS)),
        ("example", 30, Kind::Any),
    ],
    extensions: 31,
};

/// The document as a message.
pub fn encode(document: &Value) -> Result<Vec<u8>, Unknown> {
    let mut out = Vec::with_capacity(1 << 20);
    message(&mut out, &DOCUMENT, document)?;
    Ok(out)
}

fn message(out: &mut Vec<u8>, of: &'static Message, value: &Value) -> Result<(), Unknown> {
    for (name, value) in value.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            extension(out, of.extensions, name, value);
            continue;
        }
        let found = of
            .members
            .iter()
            .find(|(member, ..)| member == name || member.is_empty());
        match found {
            Some((_, tag, Kind::Entries(of))) => {
                let entry = entry(name, |out| message(out, of, value))?;
                bytes(out, *tag, &entry);
            }
            Some((_, tag, kind)) => member(out, *tag, kind, value)?,
            None => {
                return Err(Unknown {
                    message: of.name,
                    member: name.clone(),
                });
            }
        }
    }
    Ok(())
}

fn member(out: &mut Vec<u8>, tag: u32, kind: &'static Kind, value: &Value) -> Result<(), Unknown> {
    match kind {
        Kind::Text => bytes(out, tag, value.as_str().unwrap_or_default().as_bytes()),
        Kind::Texts => texts(out, tag, value),
        Kind::Bool => integer(out, tag, u64::from(value.as_bool().unwrap_or_default())),
        Kind::Integer => integer(out, tag, value.as_i64().unwrap_or_default() as u64),
        Kind::Double => {
            key(out, tag, 1);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Kind::Any => bytes(out, tag, &any(value)),
        Kind::Anys => items(value).for_each(|item| bytes(out, tag, &any(item))),
        Kind::Message(of) => bytes(out, tag, &made(|out| message(out, of, value))?),
        Kind::Messages(of) => {
            for item in items(value) {
                bytes(out, tag, &made(|out| message(out, of, item))?);
            }
        }
        Kind::Named(of) => {
            let named = made(|out| {
                for (name, value) in value.as_object().into_iter().flatten() {
                    bytes(out, 1, &entry(name, |out| message(out, of, value))?);
                }
                Ok(())
            })?;
            bytes(out, tag, &named);
        }
        // Handled with the member's name, by `message`.
        Kind::Entries(_) => {}
        Kind::TextList => {
            let mut list = Vec::new();
            match value {
                Value::String(text) => bytes(&mut list, 1, text.as_bytes()),
                other => texts(&mut list, 1, other),
            }
            bytes(out, tag, &list);
        }
        Kind::SchemaOrBool => {
            let wrapped = made(|out| match value {
                Value::Bool(value) => {
                    integer(out, 2, u64::from(*value));
                    Ok(())
                }
                value => wrapped(out, &SCHEMA, value),
            })?;
            bytes(out, tag, &wrapped);
        }
        Kind::WrappedSchema => bytes(out, tag, &made(|out| wrapped(out, &SCHEMA, value))?),
        Kind::Parameters => {
            for parameter in items(value) {
                bytes(out, tag, &made(|out| parameters_item(out, parameter))?);
            }
        }
        Kind::Responses => {
            let responses = made(|out| {
                for (code, value) in value.as_object().into_iter().flatten() {
                    bytes(out, 1, &entry(code, |out| wrapped(out, &RESPONSE, value))?);
                }
                Ok(())
            })?;
            bytes(out, tag, &responses);
        }
        Kind::Requirements => {
            for requirement in items(value) {
                let named = made(|out| {
                    for (name, value) in requirement.as_object().into_iter().flatten() {
                        let list = entry(name, |out| {
                            texts(out, 1, value);
                            Ok(())
                        })?;
                        bytes(out, 1, &list);
                    }
                    Ok(())
                })?;
                bytes(out, tag, &named);
            }
        }
        Kind::SecurityDefinitions => {
            let named = made(|out| {
                for (name, value) in value.as_object().into_iter().flatten() {
                    // The second of the kinds of definitions is a key.
                    let item = entry(name, |out| {
                        bytes(out, 2, &made(|out| message(out, &API_KEY, value))?);
                        Ok(())
                    })?;
                    bytes(out, 1, &item);
                }
                Ok(())
            })?;
            bytes(out, tag, &named);
        }
    }
    Ok(())
}

/// A parameter is one of the body, or one of several others.
fn parameters_item(out: &mut Vec<u8>, parameter: &Value) -> Result<(), Unknown> {
    let parameter = made(|out| match parameter["in"].as_str() {
        Some("body") => {
            bytes(out, 1, &made(|out| message(out, &BODY_PARAMETER, parameter))?);
            Ok(())
        }
        place => {
            let (tag, of) = match place {
                Some("path") => (4, &PATH_PARAMETER),
                _ => (3, &QUERY_PARAMETER),
            };
            let other = made(|out| {
                bytes(out, tag, &made(|out| message(out, of, parameter))?);
                Ok(())
            })?;
            bytes(out, 2, &other);
            Ok(())
        }
    })?;
    bytes(out, 1, &parameter);
    Ok(())
}

/// A message in the field 1 of another.
fn wrapped(out: &mut Vec<u8>, of: &'static Message, value: &Value) -> Result<(), Unknown> {
    let inner = made(|out| message(out, of, value))?;
    bytes(out, 1, &inner);
    Ok(())
}

fn made(make: impl FnOnce(&mut Vec<u8>) -> Result<(), Unknown>) -> Result<Vec<u8>, Unknown> {
    let mut out = Vec::new();
    make(&mut out)?;
    Ok(out)
}

fn entry(name: &str, make: impl FnOnce(&mut Vec<u8>) -> Result<(), Unknown>) -> Result<Vec<u8>, Unknown> {
    let value = made(make)?;
    let mut out = Vec::with_capacity(name.len() + value.len() + 8);
    bytes(&mut out, 1, name.as_bytes());
    bytes(&mut out, 2, &value);
    Ok(out)
}

fn extension(out: &mut Vec<u8>, tag: u32, name: &str, value: &Value) {
    let mut named = Vec::new();
    bytes(&mut named, 1, name.as_bytes());
    bytes(&mut named, 2, &any(value));
    bytes(out, tag, &named);
}

/// JSON is YAML.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 2, value.to_string().as_bytes());
    out
}

fn items(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

fn texts(out: &mut Vec<u8>, tag: u32, value: &Value) {
    items(value).for_each(|item| bytes(out, tag, item.as_str().unwrap_or_default().as_bytes()));
}

fn bytes(out: &mut Vec<u8>, tag: u32, content: &[u8]) {
    key(out, tag, 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn integer(out: &mut Vec<u8>, tag: u32, value: u64) {
    key(out, tag, 0);
    varint(out, value);
}

fn key(out: &mut Vec<u8>, tag: u32, wire: u32) {
    varint(out, u64::from(tag << 3 | wire));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_become_fields_and_the_rest_is_refused() {
        let document = json!({ "swagger": "2.0", "x-a": 1 });
        let expected = b"\x0a\x032.0\x82\x01\x0a\x0a\x03x-a\x12\x03\x12\x011";
        assert_eq!(encode(&document).unwrap(), expected);
        assert!(encode(&json!({ "definitions": { "A": { "oneOf": [] } } })).is_err());
    }
}
