//! A message to the same normalised value that JSON decoding gives.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Map;

use super::wire::{Fields, Wire};
use super::{ProtobufError, envelope};
use crate::json::{self, DecodeError, Leaf, LeafError, Members, decode_json, decode_leaf, parse_json, zero};
use crate::model::{MessagePart, Schema, SchemaAlternative, Shape, Type, TypeId};
use crate::time::{self, Instant};
use crate::view::TypeRef;
use crate::{Value, go};

type Result<T> = std::result::Result<T, ProtobufError>;

/// Reads the body of a message of type `ty`. Unknown tags are passed over, as newer versions may send them.
pub fn decode_protobuf(ty: TypeRef<'_>, data: &[u8]) -> Result<Value> {
    let mut decoder = Decoder {
        schema: ty.schema,
        depth: 0,
    };
    decoder.message(ty.id, data)
}

/// Reads a whole object from its envelope, `apiVersion` and `kind` included.
pub fn decode_object(schema: &Schema, data: &[u8]) -> Result<Value> {
    let mut decoder = Decoder { schema, depth: 0 };
    decoder.enveloped(data)
}

struct Decoder<'s> {
    schema: &'s Schema,
    depth: usize,
}

impl Decoder<'_> {
    fn enveloped(&mut self, data: &[u8]) -> Result<Value> {
        let unknown = envelope::decode(data)?;
        let ty = self.schema.object(unknown.api_version, unknown.kind);
        if unknown.content_type == "application/json" {
            return match ty {
                Some(ty) => decode_json(ty, unknown.raw)
                    .map(|decoded| decoded.value)
                    .map_err(content_error),
                None => json_value(unknown.raw),
            };
        }
        let ty = ty.ok_or_else(|| ProtobufError::UnknownKind {
            api_version: unknown.api_version.into(),
            kind: unknown.kind.into(),
        })?;
        let mut value = self.message(ty.id, unknown.raw)?;
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), Value::from(unknown.api_version));
            map.insert("kind".to_owned(), Value::from(unknown.kind));
        }
        Ok(value)
    }

    fn message(&mut self, id: TypeId, data: &[u8]) -> Result<Value> {
        let mut members = Members::default();
        self.message_into(id, id, data, &mut members)?;
        Ok(Value::Object(members.finish(self.schema, id)))
    }

    /// Reads a message that is `outer` itself or inlined in it; in JSON both are one object.
    fn message_into(&mut self, id: TypeId, outer: TypeId, data: &[u8], members: &mut Members) -> Result<()> {
        let ty = self.schema.get(id);
        if ty.json_only {
            return Err(ProtobufError::JsonOnly {
                go_name: ty.go_name().into(),
            });
        }
        self.depth += 1;
        if self.depth > json::MAX_DEPTH {
            return Err(ProtobufError::TooDeep(json::MAX_DEPTH));
        }
        let mut fields = Fields::new(data);
        while let Some((tag, wire)) = fields.next()? {
            let Ok(index) = ty.message.binary_search_by_key(&tag, |part| part.tag) else {
                continue;
            };
            match ty.message[index].part {
                MessagePart::Inline(inlined) => self.message_into(inlined, outer, bytes_of(wire)?, members)?,
                MessagePart::Field(position) if id == outer => {
                    self.field(ty, usize::from(position), wire, members)?;
                }
                MessagePart::Field(position) => {
                    let outer = self.schema.get(outer);
                    if let Some(position) = outer.position(&ty.fields[usize::from(position)].name) {
                        self.field(outer, position, wire, members)?;
                    }
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self, ty: &Type, position: usize, wire: Wire<'_>, members: &mut Members) -> Result<()> {
        let field = &ty.fields[position];
        if matches!(field.shape, Shape::List(_) | Shape::Map(_)) {
            return self.repeated(field.shape, wire, members.slot(position));
        }
        let value = match (field.shape, members.take(position)) {
            (Shape::Struct(id), Some(Value::Object(earlier))) => self.merged(id, earlier, bytes_of(wire)?)?,
            (shape, _) => self.value(shape, wire)?,
        };
        members.put(field, position, value);
        Ok(())
    }

    /// A message that comes twice is merged, as any protobuf reader does.
    fn merged(&mut self, id: TypeId, earlier: Map<String, Value>, data: &[u8]) -> Result<Value> {
        let mut members = Members::from_map(self.schema.get(id), earlier);
        self.message_into(id, id, data, &mut members)?;
        Ok(Value::Object(members.finish(self.schema, id)))
    }

    fn repeated(&mut self, shape: Shape, wire: Wire<'_>, slot: &mut Value) -> Result<()> {
        match shape {
            Shape::List(element) => {
                let element = self.schema.element(element);
                if slot.is_null() {
                    *slot = Value::Array(Vec::new());
                }
                if let Value::Array(items) = slot {
                    self.item(element, wire, items)?;
                }
            }
            Shape::Map(element) => {
                let element = self.schema.element(element);
                let (key, value) = self.entry(element, bytes_of(wire)?)?;
                if slot.is_null() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(map) = slot {
                    map.insert(key, value);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// One element of a repeated field, or several where a writer has packed them.
    fn item(&mut self, element: Shape, wire: Wire<'_>, items: &mut Vec<Value>) -> Result<()> {
        let is_varint = matches!(element, Shape::Int32 | Shape::Int64 | Shape::Bool);
        if let (true, Wire::Bytes(packed)) = (is_varint, wire) {
            let mut packed = Fields::new(packed);
            while !packed.is_empty() {
                let value = self.value(element, Wire::Varint(packed.varint()?))?;
                items.push(value);
            }
            return Ok(());
        }
        let value = self.value(element, wire)?;
        items.push(value);
        Ok(())
    }

    fn entry(&mut self, element: Shape, data: &[u8]) -> Result<(String, Value)> {
        let mut key = String::new();
        let mut value = None;
        let mut fields = Fields::new(data);
        while let Some((tag, wire)) = fields.next()? {
            match tag {
                1 => key = text_of(wire)?,
                2 => value = Some(self.value(element, wire)?),
                _ => {}
            }
        }
        Ok((key, value.unwrap_or_else(|| zero(self.schema, element))))
    }

    fn value(&mut self, shape: Shape, wire: Wire<'_>) -> Result<Value> {
        match shape {
            Shape::Struct(id) => self.message(id, bytes_of(wire)?),
            Shape::WrappedList(element) => self.wrapped(self.schema.element(element), bytes_of(wire)?),
            Shape::Raw(_) => self.raw(bytes_of(wire)?),
            Shape::SchemaOr(alternative, id) => self.schema_or(alternative, id, bytes_of(wire)?),
            _ => scalar(shape, wire),
        }
    }

    fn wrapped(&mut self, element: Shape, data: &[u8]) -> Result<Value> {
        let mut items = Vec::new();
        let mut fields = Fields::new(data);
        while let Some((tag, wire)) = fields.next()? {
            if tag == 1 {
                self.item(element, wire, &mut items)?;
            }
        }
        Ok(Value::Array(items))
    }

    fn raw(&mut self, data: &[u8]) -> Result<Value> {
        match last(data, 1)? {
            None => Ok(Value::Null),
            Some(wire) => {
                let raw = bytes_of(wire)?;
                if envelope::is_envelope(raw) {
                    self.enveloped(raw)
                } else if raw.is_empty() {
                    Ok(Value::Null)
                } else {
                    json_value(raw)
                }
            }
        }
    }

    fn schema_or(&mut self, alternative: SchemaAlternative, id: TypeId, data: &[u8]) -> Result<Value> {
        let mut allows = false;
        let mut schema = None;
        let mut items = Vec::new();
        let mut fields = Fields::new(data);
        while let Some((tag, wire)) = fields.next()? {
            match (alternative, tag) {
                (SchemaAlternative::Bool, 1) => allows = varint_of(wire)? != 0,
                (SchemaAlternative::Bool, 2) => schema = Some(self.message(id, bytes_of(wire)?)?),
                (_, 1) => schema = Some(self.message(id, bytes_of(wire)?)?),
                (SchemaAlternative::Array, 2) => items.push(self.message(id, bytes_of(wire)?)?),
                (SchemaAlternative::StringArray, 2) => items.push(Value::String(text_of(wire)?)),
                _ => {}
            }
        }
        Ok(match (alternative, schema) {
            (SchemaAlternative::Bool, None) => Value::Bool(allows),
            _ if !items.is_empty() => Value::Array(items),
            (_, schema) => schema.unwrap_or(Value::Null),
        })
    }
}

fn scalar(shape: Shape, wire: Wire<'_>) -> Result<Value> {
    Ok(match shape {
        Shape::String => Value::String(text_of(wire)?),
        Shape::Bool => Value::Bool(varint_of(wire)? != 0),
        Shape::Int32 => Value::from(varint_of(wire)? as i32),
        Shape::Int64 => Value::from(varint_of(wire)? as i64),
        Shape::Float64 => match wire {
            Wire::Fixed64(bits) => float(bits)?,
            _ => return Err(ProtobufError::Malformed("a number has the wrong wire type")),
        },
        Shape::Bytes => Value::String(STANDARD.encode(bytes_of(wire)?)),
        _ => special(shape, bytes_of(wire)?)?,
    })
}

/// A value that is a string or number in JSON but a message in protobuf.
fn special(shape: Shape, data: &[u8]) -> Result<Value> {
    match shape {
        Shape::Time => timestamp(data, |instant| time::format(Instant { nanos: 0, ..instant })),
        Shape::MicroTime => timestamp(data, time::format_micro),
        Shape::Duration => {
            let nanos = last(data, 1)?.map_or(Ok(0), varint_of)?;
            Ok(Value::String(go::format_duration(nanos as i64)))
        }
        Shape::Quantity => {
            let text = last(data, 1)?.map_or(Ok("0".to_owned()), text_of)?;
            leaf(shape, Leaf::String(text.into()))
        }
        Shape::IntOrString => int_or_string(data),
        _ => Err(ProtobufError::Malformed("a field has the wrong wire type")),
    }
}

fn timestamp(data: &[u8], format: fn(Instant) -> String) -> Result<Value> {
    if data.is_empty() {
        return Ok(Value::Null);
    }
    let mut instant = Instant { seconds: 0, nanos: 0 };
    let mut fields = Fields::new(data);
    while let Some((tag, wire)) = fields.next()? {
        match tag {
            1 => instant.seconds = varint_of(wire)? as i64,
            2 => instant.nanos = u32::try_from(varint_of(wire)?).unwrap_or(u32::MAX),
            _ => {}
        }
    }
    if instant.nanos >= 1_000_000_000 || !instant.is_representable() {
        return Err(ProtobufError::Malformed("a time is out of range"));
    }
    if instant.is_zero() {
        return Ok(Value::Null);
    }
    Ok(Value::String(format(instant)))
}

fn int_or_string(data: &[u8]) -> Result<Value> {
    let (mut kind, mut number, mut text) = (0, 0, String::new());
    let mut fields = Fields::new(data);
    while let Some((tag, wire)) = fields.next()? {
        match tag {
            1 => kind = varint_of(wire)?,
            2 => number = varint_of(wire)? as i32,
            3 => text = text_of(wire)?,
            _ => {}
        }
    }
    match kind {
        0 => Ok(Value::from(number)),
        1 => Ok(Value::String(text)),
        _ => Err(ProtobufError::Malformed("a number or string is neither")),
    }
}

/// The last occurrence of a tag, which is the one that counts.
fn last<'a>(data: &'a [u8], wanted: u32) -> Result<Option<Wire<'a>>> {
    let mut found = None;
    let mut fields = Fields::new(data);
    while let Some((tag, wire)) = fields.next()? {
        if tag == wanted {
            found = Some(wire);
        }
    }
    Ok(found)
}

fn leaf(shape: Shape, found: Leaf<'_>) -> Result<Value> {
    decode_leaf(shape, found).map_err(|error| match error {
        LeafError::Content(message) => ProtobufError::Content(message.into()),
        LeafError::Type { found, wanted } => ProtobufError::Content(format!("{found} is not of type {wanted}").into()),
    })
}

fn float(bits: u64) -> Result<Value> {
    json::from_f64(f64::from_bits(bits)).ok_or(ProtobufError::Malformed("a number is not finite"))
}

fn json_value(raw: &[u8]) -> Result<Value> {
    parse_json(raw).map_err(content_error)
}

fn content_error(error: DecodeError) -> ProtobufError {
    ProtobufError::Content(error.to_string().into())
}

fn bytes_of(wire: Wire<'_>) -> Result<&[u8]> {
    match wire {
        Wire::Bytes(bytes) => Ok(bytes),
        _ => Err(ProtobufError::Malformed("a field has the wrong wire type")),
    }
}

fn varint_of(wire: Wire<'_>) -> Result<u64> {
    match wire {
        Wire::Varint(value) => Ok(value),
        _ => Err(ProtobufError::Malformed("a field has the wrong wire type")),
    }
}

/// Text that is not UTF-8 becomes what JSON output would have made of it.
fn text_of(wire: Wire<'_>) -> Result<String> {
    Ok(json::text(bytes_of(wire)?).into_owned())
}
