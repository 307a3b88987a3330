//! A normalised value to its message, in one pass from the last byte to the first.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use serde_json::Map;

use super::wire::{BackWriter, FIXED64};
use super::{ProtobufError, envelope};
use crate::model::{MessagePart, Schema, SchemaAlternative, Shape, Type, TypeId, TypeRef};
use crate::{Value, encode_json, go, time};

type Result<T> = std::result::Result<T, ProtobufError>;

/// The body of the message for a value of type `ty`. `apiVersion` and `kind` are not part of it: they travel in the
/// envelope.
pub fn encode_protobuf(ty: TypeRef<'_>, value: &Value) -> Result<Vec<u8>> {
    let mut encoder = Encoder {
        schema: ty.schema,
        out: BackWriter::with_capacity(1024),
    };
    encoder.message(ty.id, value)?;
    Ok(encoder.out.into_vec())
}

/// A whole object with its envelope, its type taken from its own `apiVersion` and `kind`.
pub fn encode_object(schema: &Schema, value: &Value) -> Result<Vec<u8>> {
    let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (member("apiVersion"), member("kind"));
    let ty = schema
        .object(api_version, kind)
        .ok_or_else(|| ProtobufError::UnknownKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })?;
    Ok(envelope::encode(api_version, kind, &encode_protobuf(ty, value)?))
}

/// The body of a WatchEvent whose object is already encoded, enveloped or as JSON.
pub fn watch_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = BackWriter::with_capacity(object.len() + event_type.len() + 24);
    let before = out.len();
    out.bytes_field(1, object);
    out.close(2, before);
    out.bytes_field(1, event_type.as_bytes());
    out.into_vec()
}

struct Encoder<'s> {
    schema: &'s Schema,
    out: BackWriter,
}

/// Where a value stands, for error messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    owner: TypeId,
    field: &'a str,
}

/// Structs with more fields than this have theirs looked up one by one.
const FEW_FIELDS: usize = 64;

/// The values of a struct's fields by position. One pass over what is there beats a search for every field that could be.
fn present_fields<'a, 'v>(
    ty: &Type,
    map: &'v Map<String, Value>,
    few: &'a mut [Option<&'v Value>; FEW_FIELDS],
) -> Option<&'a [Option<&'v Value>]> {
    let slots = few.get_mut(..ty.fields.len())?;
    for (name, value) in map {
        if let Some(position) = ty.position(name) {
            slots[position] = Some(value);
        }
    }
    Some(slots)
}

impl Encoder<'_> {
    fn message(&mut self, id: TypeId, value: &Value) -> Result<()> {
        let schema = self.schema;
        let ty = schema.get(id);
        if ty.json_only {
            return Err(ProtobufError::JsonOnly { go_name: ty.go_name() });
        }
        let place = Place { owner: id, field: "" };
        let map = match value {
            Value::Object(map) => map,
            Value::Null => &Map::new(),
            other => return Err(self.unfit(Shape::Struct(id), other, place)),
        };
        let mut few = [None; FEW_FIELDS];
        let present = present_fields(ty, map, &mut few);
        for part in ty.message.iter().rev() {
            match part.part {
                MessagePart::Inline(inlined) => {
                    let before = self.out.len();
                    self.message(inlined, value)?;
                    self.out.close(part.tag, before);
                }
                MessagePart::Field(position) => {
                    let field = &ty.fields[usize::from(position)];
                    let value = match present {
                        Some(present) => present[usize::from(position)],
                        None => map.get(&*field.name),
                    };
                    let value = value.unwrap_or(&Value::Null);
                    let place = Place {
                        owner: id,
                        field: &field.name,
                    };
                    if !(value.is_null() && field.pointer) {
                        self.field(part.tag, field.shape, value, place)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a field that is not a nil pointer; null stands for the zero value.
    fn field(&mut self, tag: u32, shape: Shape, value: &Value, place: Place<'_>) -> Result<()> {
        match (shape, value) {
            (Shape::List(_) | Shape::Map(_) | Shape::WrappedList(_), Value::Null) => {}
            (Shape::List(element), Value::Array(items)) => {
                let element = self.schema.element(element);
                for item in items.iter().rev() {
                    self.field(tag, element, item, place)?;
                }
            }
            (Shape::Map(element), Value::Object(map)) => {
                let element = self.schema.element(element);
                for (key, value) in map.iter().rev() {
                    let before = self.out.len();
                    self.field(2, element, value, place)?;
                    self.out.bytes_field(1, key.as_bytes());
                    self.out.close(tag, before);
                }
            }
            (Shape::String, Value::Null) => self.out.bytes_field(tag, b""),
            (Shape::String, Value::String(text)) => self.out.bytes_field(tag, text.as_bytes()),
            (Shape::Bool, Value::Null) => self.out.varint_field(tag, 0),
            (Shape::Bool, Value::Bool(value)) => self.out.varint_field(tag, u64::from(*value)),
            (Shape::Int32 | Shape::Int64, Value::Null) => self.out.varint_field(tag, 0),
            (Shape::Int32 | Shape::Int64, Value::Number(number)) => match number.as_i64() {
                Some(number) => self.out.varint_field(tag, number as u64),
                None => return Err(self.unfit(shape, value, place)),
            },
            (Shape::Float64, Value::Null | Value::Number(_)) => {
                self.out.bytes(&value.as_f64().unwrap_or_default().to_le_bytes());
                self.out.tag(tag, FIXED64);
            }
            (Shape::Bytes, Value::Null) => {}
            (Shape::Bytes, Value::String(text)) => match STANDARD.decode(text) {
                Ok(bytes) => self.out.bytes_field(tag, &bytes),
                Err(_) => return Err(self.unfit(shape, value, place)),
            },
            _ => {
                let before = self.out.len();
                self.nested(shape, value, place)?;
                self.out.close(tag, before);
            }
        }
        Ok(())
    }

    /// Writes the body of a value that is a message of its own.
    fn nested(&mut self, shape: Shape, value: &Value, place: Place<'_>) -> Result<()> {
        match (shape, value) {
            (Shape::Struct(id), _) => self.message(id, value)?,
            (Shape::WrappedList(element), Value::Array(items)) => {
                let element = self.schema.element(element);
                for item in items.iter().rev() {
                    self.field(1, element, item, place)?;
                }
            }
            (Shape::Raw(_), Value::Null) => {}
            (Shape::Raw(_), _) => self.out.bytes_field(1, &encode_json(value)),
            (Shape::SchemaOr(alternative, id), _) => self.schema_or(alternative, id, value, place)?,
            (Shape::Time, Value::String(text)) => match time::parse(text) {
                Ok(instant) => self.timestamp(instant.seconds, 0),
                Err(_) => return Err(self.unfit(shape, value, place)),
            },
            (Shape::MicroTime, Value::String(text)) => match time::parse_micro(text) {
                Ok(instant) => self.timestamp(instant.seconds, instant.nanos),
                Err(_) => return Err(self.unfit(shape, value, place)),
            },
            (Shape::Time | Shape::MicroTime, Value::Null) => {}
            (Shape::Duration, Value::Null) => self.out.varint_field(1, 0),
            (Shape::Duration, Value::String(text)) => match go::parse_duration(text) {
                Ok(nanos) => self.out.varint_field(1, nanos as u64),
                Err(_) => return Err(self.unfit(shape, value, place)),
            },
            (Shape::Quantity, Value::Null) => self.out.bytes_field(1, b"0"),
            (Shape::Quantity, Value::String(text)) => self.out.bytes_field(1, text.as_bytes()),
            (Shape::IntOrString, Value::Null) => self.int_or_string(0, 0, ""),
            (Shape::IntOrString, Value::String(text)) => self.int_or_string(1, 0, text),
            (Shape::IntOrString, Value::Number(number)) => match number.as_i64() {
                Some(number) => self.int_or_string(0, number, ""),
                None => return Err(self.unfit(shape, value, place)),
            },
            _ => return Err(self.unfit(shape, value, place)),
        }
        Ok(())
    }

    fn timestamp(&mut self, seconds: i64, nanos: u32) {
        self.out.varint_field(2, nanos.into());
        self.out.varint_field(1, seconds as u64);
    }

    fn int_or_string(&mut self, kind: u64, number: i64, text: &str) {
        self.out.bytes_field(3, text.as_bytes());
        self.out.varint_field(2, number as u64);
        self.out.varint_field(1, kind);
    }

    fn schema_or(&mut self, alternative: SchemaAlternative, id: TypeId, value: &Value, place: Place<'_>) -> Result<()> {
        let schema = Shape::Struct(id);
        match (alternative, value) {
            (SchemaAlternative::Bool, Value::Object(_)) => {
                self.field(2, schema, value, place)?;
                self.out.varint_field(1, 1);
            }
            (SchemaAlternative::Bool, Value::Bool(allows)) => self.out.varint_field(1, u64::from(*allows)),
            (SchemaAlternative::Bool, _) => return Err(self.unfit(Shape::SchemaOr(alternative, id), value, place)),
            (_, Value::Object(_)) => self.field(1, schema, value, place)?,
            (_, Value::Array(items)) => {
                let element = if alternative == SchemaAlternative::Array {
                    schema
                } else {
                    Shape::String
                };
                for item in items.iter().rev() {
                    self.field(2, element, item, place)?;
                }
            }
            (_, Value::Null) => {}
            _ => return Err(self.unfit(Shape::SchemaOr(alternative, id), value, place)),
        }
        Ok(())
    }

    fn unfit(&self, shape: Shape, value: &Value, place: Place<'_>) -> ProtobufError {
        ProtobufError::Unfit {
            type_name: self.schema.get(place.owner).name.to_string(),
            field: place.field.to_owned(),
            found: match value {
                Value::Null => "null",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number",
                Value::String(_) => "a string",
                Value::Array(_) => "an array",
                Value::Object(_) => "an object",
            },
            wanted: self.schema.go_name(shape),
        }
    }
}
