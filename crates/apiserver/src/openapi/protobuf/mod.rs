//! Documents in protobuf, the form in which kubectl and client-go fetch them.
//!
//! Each message is a table of the JSON members it takes and the tags they have; members that start with `x-` become
//! extensions, whose values are YAML texts. The tables are in `v2` and `v3`.

mod v2;
mod v3;

use api::Value;

pub use v2::DOCUMENT as V2;
pub use v3::DOCUMENT as V3;

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
    Bool,
    /// A whole number.
    Integer,
    /// A floating-point number.
    Double,
    /// Any value, as YAML.
    Any,
    Message(&'static Message),
    /// A list, each item of which stands under the tag.
    Each(&'static Kind),
    /// A map whose entries are `{name = 1, value = 2}` in the field 1 of a message of its own.
    Named(&'static Kind),
    /// What any other member of the message is, as such an entry under the tag.
    Entries(&'static Kind),
    /// A message with one field, which depends on the value, or none.
    OneOf(fn(&Value) -> Option<(u32, Kind)>),
}

/// A message: its name for errors, its members, and the tag of its extensions.
pub struct Message {
    name: &'static str,
    members: &'static [(&'static str, u32, Kind)],
    extensions: u32,
}

/// A list of texts.
const TEXTS: Kind = Kind::Each(&Kind::Text);
/// A list of texts in the field 1 of a message.
const TEXT_ARRAY: Kind = Kind::OneOf(|_| Some((1, TEXTS)));
/// Security requirements, each a map from a name to texts.
const REQUIREMENTS: Kind = Kind::Each(&Kind::Named(&TEXT_ARRAY));

/// The value as a message.
pub fn encode(of: &'static Message, value: &Value) -> Result<Vec<u8>, Unknown> {
    let mut out = Vec::new();
    message(&mut out, of, value)?;
    Ok(out)
}

fn message(out: &mut Vec<u8>, of: &'static Message, value: &Value) -> Result<(), Unknown> {
    for (name, value) in value.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            bytes(out, of.extensions, &entry(name, &Kind::Any, value)?);
            continue;
        }
        let fits = |(member, _, kind): &&(&str, u32, Kind)| member == name || matches!(kind, Kind::Entries(_));
        match of.members.iter().find(fits) {
            Some((_, tag, Kind::Entries(kind))) => bytes(out, *tag, &entry(name, kind, value)?),
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

fn member(out: &mut Vec<u8>, tag: u32, kind: &Kind, value: &Value) -> Result<(), Unknown> {
    match kind {
        Kind::Text => bytes(out, tag, value.as_str().unwrap_or_default().as_bytes()),
        Kind::Bool => integer(out, tag, u64::from(value.as_bool().unwrap_or_default())),
        Kind::Integer => integer(out, tag, value.as_i64().unwrap_or_default() as u64),
        Kind::Double => {
            key(out, tag, 1);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Kind::Any => {
            let mut any = Vec::new();
            // JSON is YAML.
            bytes(&mut any, 2, value.to_string().as_bytes());
            bytes(out, tag, &any);
        }
        Kind::Message(of) => bytes(out, tag, &encode(of, value)?),
        Kind::Each(kind) => {
            for item in value.as_array().into_iter().flatten() {
                member(out, tag, kind, item)?;
            }
        }
        Kind::Named(kind) => {
            let mut named = Vec::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                bytes(&mut named, 1, &entry(name, kind, value)?);
            }
            bytes(out, tag, &named);
        }
        // Handled with the member's name, by `message`.
        Kind::Entries(_) => {}
        Kind::OneOf(choose) => {
            let mut chosen = Vec::new();
            if let Some((tag, kind)) = choose(value) {
                member(&mut chosen, tag, &kind, value)?;
            }
            bytes(out, tag, &chosen);
        }
    }
    Ok(())
}

fn entry(name: &str, kind: &Kind, value: &Value) -> Result<Vec<u8>, Unknown> {
    let mut out = Vec::new();
    bytes(&mut out, 1, name.as_bytes());
    member(&mut out, 2, kind, value)?;
    Ok(out)
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
        assert_eq!(encode(&V2, &document).unwrap(), expected);
        assert!(encode(&V2, &json!({ "definitions": { "A": { "oneOf": [] } } })).is_err());
    }

    #[test]
    fn a_schema_or_a_reference_and_only_simple_defaults() {
        let schemas = |schema: Value| json!({ "components": { "schemas": { "A": schema } } });
        let made = |schema: Value| encode(&V3, &schemas(schema)).unwrap();
        let around = |schema: &[u8]| {
            let entry = [&b"\x0a\x01A\x12"[..], &[schema.len() as u8], schema].concat();
            let named = [&b"\x0a"[..], &[entry.len() as u8], &entry].concat();
            let components = [&b"\x0a"[..], &[named.len() as u8], &named].concat();
            [&b"\x2a"[..], &[components.len() as u8], &components].concat()
        };
        assert_eq!(made(json!({ "$ref": "#/b" })), around(b"\x12\x05\x0a\x03#/b"));
        assert_eq!(made(json!({ "nullable": true })), around(b"\x0a\x02\x08\x01"));
        assert_eq!(
            made(json!({ "default": "d" })),
            around(b"\x0a\x06\x8a\x02\x03\x1a\x01d")
        );
        assert_eq!(made(json!({ "default": {} })), around(b"\x0a\x03\x8a\x02\x00"));
        assert!(encode(&V3, &schemas(json!({ "swagger": "2.0" }))).is_err());
    }
}
