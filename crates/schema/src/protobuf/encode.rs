//! A normalised value to its message, in one pass from the last byte to the first.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use serde_json::Map;

use super::wire::{BackWriter, FIXED64};
use super::{ProtobufError, envelope};
use crate::model::{MessagePart, Schema, SchemaAlternative, Shape, Type, TypeId};
use crate::view::TypeRef;
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
            api_version: api_version.into(),
            kind: kind.into(),
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
struct FieldPosition<'a> {
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
            return Err(ProtobufError::JsonOnly {
                go_name: ty.go_name().into(),
            });
        }
        let position = FieldPosition { owner: id, field: "" };
        let map = match value {
            Value::Object(map) => map,
            Value::Null => &Map::new(),
            other => return Err(self.unfit(Shape::Struct(id), other, position)),
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
                    let position = FieldPosition {
                        owner: id,
                        field: &field.name,
                    };
                    if !(value.is_null() && field.pointer) {
                        self.field(part.tag, field.shape, value, position)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a field that is not a nil pointer; null stands for the zero value.
    fn field(&mut self, tag: u32, shape: Shape, value: &Value, position: FieldPosition<'_>) -> Result<()> {
        match shape {
            Shape::Struct(id) => {
                let before = self.out.len();
                self.message(id, value)?;
                self.out.close(tag, before);
                Ok(())
            }
            Shape::List(element) => self.list(tag, self.schema.element(element), value, position),
            Shape::Map(element) => self.map(tag, self.schema.element(element), value, position),
            Shape::WrappedList(_) if value.is_null() => Ok(()),
            Shape::WrappedList(element) => {
                let before = self.out.len();
                self.list(1, self.schema.element(element), value, position)?;
                self.out.close(tag, before);
                Ok(())
            }
            Shape::SchemaOr(alternative, id) => {
                let before = self.out.len();
                self.schema_or(alternative, id, value, position)?;
                self.out.close(tag, before);
                Ok(())
            }
            _ => self.scalar(tag, shape, value, position),
        }
    }

    fn list(&mut self, tag: u32, element: Shape, value: &Value, position: FieldPosition<'_>) -> Result<()> {
        match value {
            Value::Null => Ok(()),
            Value::Array(items) => items
                .iter()
                .rev()
                .try_for_each(|item| self.field(tag, element, item, position)),
            _ => Err(self.unfit(element, value, position)),
        }
    }

    fn map(&mut self, tag: u32, element: Shape, value: &Value, position: FieldPosition<'_>) -> Result<()> {
        let map = match value {
            Value::Null => return Ok(()),
            Value::Object(map) => map,
            _ => return Err(self.unfit(element, value, position)),
        };
        for (key, value) in map.iter().rev() {
            let before = self.out.len();
            self.field(2, element, value, position)?;
            self.out.bytes_field(1, key.as_bytes());
            self.out.close(tag, before);
        }
        Ok(())
    }

    /// Writes a field whose value is no message of its own.
    fn scalar(&mut self, tag: u32, shape: Shape, value: &Value, position: FieldPosition<'_>) -> Result<()> {
        match (shape, value) {
            (Shape::String, Value::Null) => self.out.bytes_field(tag, b""),
            (Shape::String, Value::String(text)) => self.out.bytes_field(tag, text.as_bytes()),
            (Shape::Bool | Shape::Int32 | Shape::Int64, Value::Null) => self.out.varint_field(tag, 0),
            (Shape::Bool, Value::Bool(value)) => self.out.varint_field(tag, u64::from(*value)),
            (Shape::Int32 | Shape::Int64, Value::Number(number)) => match number.as_i64() {
                Some(number) => self.out.varint_field(tag, number as u64),
                None => return Err(self.unfit(shape, value, position)),
            },
            (Shape::Float64, Value::Null | Value::Number(_)) => {
                self.out.bytes(&value.as_f64().unwrap_or_default().to_le_bytes());
                self.out.tag(tag, FIXED64);
            }
            (Shape::Bytes, Value::Null) => {}
            (Shape::Bytes, Value::String(text)) => match STANDARD.decode(text) {
                Ok(bytes) => self.out.bytes_field(tag, &bytes),
                Err(_) => return Err(self.unfit(shape, value, position)),
            },
            _ => {
                let before = self.out.len();
                self.special(shape, value, position)?;
                self.out.close(tag, before);
            }
        }
        Ok(())
    }

    /// Writes the body of a value that is a string or number in JSON but a message in protobuf.
    fn special(&mut self, shape: Shape, value: &Value, position: FieldPosition<'_>) -> Result<()> {
        match (shape, value) {
            (Shape::Raw(_) | Shape::Time | Shape::MicroTime, Value::Null) => {}
            (Shape::Raw(_), _) => self.out.bytes_field(1, &encode_json(value)),
            (Shape::Time, Value::String(text)) => match time::parse(text) {
                Ok(instant) => self.timestamp(instant.seconds, 0),
                Err(_) => return Err(self.unfit(shape, value, position)),
            },
            (Shape::MicroTime, Value::String(text)) => match time::parse_micro(text) {
                Ok(instant) => self.timestamp(instant.seconds, instant.nanos),
                Err(_) => return Err(self.unfit(shape, value, position)),
            },
            (Shape::Duration, Value::Null) => self.out.varint_field(1, 0),
            (Shape::Duration, Value::String(text)) => match go::parse_duration(text) {
                Ok(nanos) => self.out.varint_field(1, nanos as u64),
                Err(_) => return Err(self.unfit(shape, value, position)),
            },
            (Shape::Quantity, Value::Null) => self.out.bytes_field(1, b"0"),
            (Shape::Quantity, Value::String(text)) => self.out.bytes_field(1, text.as_bytes()),
            (Shape::IntOrString, Value::Null) => self.int_or_string(0, 0, ""),
            (Shape::IntOrString, Value::String(text)) => self.int_or_string(1, 0, text),
            (Shape::IntOrString, Value::Number(number)) => match number.as_i64() {
                Some(number) => self.int_or_string(0, number, ""),
                None => return Err(self.unfit(shape, value, position)),
            },
            _ => return Err(self.unfit(shape, value, position)),
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

    fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
        value: &Value,
        position: FieldPosition<'_>,
    ) -> Result<()> {
        let schema = Shape::Struct(id);
        match (alternative, value) {
            (SchemaAlternative::Bool, Value::Object(_)) => {
                self.field(2, schema, value, position)?;
                self.out.varint_field(1, 1);
                Ok(())
            }
            (SchemaAlternative::Bool, Value::Bool(allows)) => {
                self.out.varint_field(1, u64::from(*allows));
                Ok(())
            }
            (SchemaAlternative::Array | SchemaAlternative::StringArray, Value::Object(_)) => {
                self.field(1, schema, value, position)
            }
            (SchemaAlternative::Array, Value::Array(_) | Value::Null) => self.list(2, schema, value, position),
            (SchemaAlternative::StringArray, Value::Array(_) | Value::Null) => {
                self.list(2, Shape::String, value, position)
            }
            _ => Err(self.unfit(Shape::SchemaOr(alternative, id), value, position)),
        }
    }

    #[cold]
    fn unfit(&self, shape: Shape, value: &Value, position: FieldPosition<'_>) -> ProtobufError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        let owner = &self.schema.get(position.owner).name;
        let wanted = self.schema.go_name(shape);
        ProtobufError::Unfit(format!("{owner}.{}: {found} cannot be written as {wanted}", position.field).into())
    }
}
