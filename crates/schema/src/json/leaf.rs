//! The leaves of an object: what each shape accepts, and the one form in which it is kept.

use std::borrow::Cow;

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine, alphabet};
use serde_json::Number;

use super::Members;
use crate::model::{Schema, SchemaAlternative, Shape};
use crate::{Value, go, quantity, time};

/// A value that is not an object or array, as it was found.
pub(crate) enum Leaf<'a> {
    Bool(bool),
    Number(Cow<'a, str>),
    String(Cow<'a, str>),
}

pub(crate) enum LeafError {
    /// The value is of a type that the shape does not take.
    Type { found: String, wanted: &'static str },
    /// The value is of the right type but does not parse.
    Content(String),
}

impl Leaf<'_> {
    /// What Go calls the value in messages.
    fn go_kind(&self) -> &'static str {
        match self {
            Leaf::Bool(_) => "bool",
            Leaf::Number(_) => "number",
            Leaf::String(_) => "string",
        }
    }
}

/// The zero value of a shape: what Go writes for a field that was never set.
pub(crate) fn zero(schema: &Schema, shape: Shape) -> Value {
    match shape {
        Shape::String => Value::String(String::new()),
        Shape::Bool | Shape::SchemaOr(SchemaAlternative::Bool, _) => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString => Value::from(0),
        Shape::Duration => Value::from("0s"),
        Shape::Quantity => Value::from("0"),
        Shape::Struct(id) => Value::Object(Members::default().finish(schema, id)),
        Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::Raw(_)
        | Shape::List(_)
        | Shape::Map(_)
        | Shape::WrappedList(_)
        | Shape::SchemaOr(..) => Value::Null,
    }
}

/// The canonical form of a leaf.
pub(crate) fn decode_leaf(shape: Shape, leaf: Leaf<'_>) -> Result<Value, LeafError> {
    match (shape, leaf) {
        (Shape::String, Leaf::String(text)) => Ok(Value::String(text.into_owned())),
        (Shape::Bool, Leaf::Bool(value)) => Ok(Value::Bool(value)),
        (Shape::Int32, Leaf::Number(text)) => integer::<i32>(&text, "int32"),
        (Shape::Int64, Leaf::Number(text)) => integer::<i64>(&text, "int64"),
        (Shape::Float64, Leaf::Number(text)) => float(&text),
        (Shape::Bytes, Leaf::String(text)) => bytes(&text),
        (Shape::Time, Leaf::String(text)) => instant(time::parse(&text), text, 20, time::format),
        (Shape::MicroTime, Leaf::String(text)) => instant(time::parse_micro(&text), text, 27, time::format_micro),
        (Shape::Duration, Leaf::String(text)) => match go::parse_duration(&text) {
            Ok(nanos) => Ok(Value::String(go::format_duration(nanos))),
            Err(error) => Err(LeafError::Content(error.to_string())),
        },
        (Shape::Quantity, Leaf::String(text) | Leaf::Number(text)) => match quantity::canonicalize(text.trim()) {
            Ok(canonical) => Ok(Value::String(canonical)),
            Err(error) => Err(LeafError::Content(error.to_string())),
        },
        (Shape::Quantity, _) => Err(LeafError::Content(quantity::QuantityError::Format.to_string())),
        (Shape::IntOrString, Leaf::String(text)) => Ok(Value::String(text.into_owned())),
        (Shape::IntOrString, Leaf::Number(text)) => integer::<i32>(&text, "int32"),
        (Shape::SchemaOr(SchemaAlternative::Bool, _), Leaf::Bool(value)) => Ok(Value::Bool(value)),
        (Shape::SchemaOr(SchemaAlternative::Bool, _), _) => {
            Err(LeafError::Content("boolean or JSON schema expected".to_owned()))
        }
        (Shape::SchemaOr(..), _) => Ok(Value::Null),
        (shape, leaf) => Err(LeafError::Type {
            found: leaf.go_kind().to_owned(),
            wanted: wanted(shape),
        }),
    }
}

/// The type that a shape's own reader asks for, where that differs from the field's type; else empty.
pub(crate) fn wanted(shape: Shape) -> &'static str {
    match shape {
        Shape::Time | Shape::MicroTime | Shape::Duration => "string",
        Shape::IntOrString => "int32",
        _ => "",
    }
}

fn integer<T: TryFrom<i64>>(text: &str, wanted: &'static str) -> Result<Value, LeafError> {
    match text.parse::<i64>() {
        Ok(number) if T::try_from(number).is_ok() => Ok(Value::from(number)),
        _ => Err(LeafError::Type {
            found: format!("number {text}"),
            wanted,
        }),
    }
}

/// Whole numbers are kept as integers, because Go writes them without a fraction.
fn float(text: &str) -> Result<Value, LeafError> {
    let number = text.parse::<f64>().ok().and_then(from_f64);
    number.ok_or_else(|| LeafError::Type {
        found: format!("number {text}"),
        wanted: "float64",
    })
}

pub(crate) fn from_f64(number: f64) -> Option<Value> {
    let whole = number as i64;
    if whole as f64 == number && whole != i64::MAX && !(number == 0.0 && number.is_sign_negative()) {
        return Some(Value::from(whole));
    }
    Number::from_f64(number).map(Value::Number)
}

/// Base64 as Go reads it, which skips line breaks and does not mind stray bits at the end, in its one canonical form.
fn bytes(text: &str) -> Result<Value, LeafError> {
    if STANDARD.decode(text).is_ok() {
        return Ok(Value::String(text.to_owned()));
    }
    let stripped: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    match LENIENT.decode(&stripped) {
        Ok(bytes) => Ok(Value::String(STANDARD.encode(bytes))),
        Err(_) => Err(LeafError::Content(format!(
            "illegal base64 data at input byte {}",
            illegal_base64_position(text.as_bytes())
        ))),
    }
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Where Go reports the damage.
fn illegal_base64_position(text: &[u8]) -> usize {
    let is_data = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let mut bytes = text
        .iter()
        .enumerate()
        .filter(|(_, byte)| !matches!(byte, b'\n' | b'\r'));
    let mut in_group = 0;
    while let Some((position, &byte)) = bytes.next() {
        if is_data(byte) {
            in_group = (in_group + 1) % 4;
            continue;
        }
        if byte != b'=' || in_group < 2 {
            return position;
        }
        if in_group == 2 {
            match bytes.next() {
                None => return text.len(),
                Some((_, b'=')) => {}
                Some((second, _)) => return second - 1,
            }
        }
        return bytes.next().map_or(text.len(), |(trailing, _)| trailing);
    }
    text.len() - in_group
}

/// A time as the API writes it. Text of the canonical length in UTC is canonical already.
fn instant(
    parsed: Result<time::Instant, time::TimeError>,
    text: Cow<'_, str>,
    canonical_length: usize,
    format: fn(time::Instant) -> String,
) -> Result<Value, LeafError> {
    match parsed {
        Ok(instant) if instant.is_zero() => Ok(Value::Null),
        Ok(_) if text.len() == canonical_length && text.ends_with('Z') => Ok(Value::String(text.into_owned())),
        Ok(instant) => Ok(Value::String(format(instant))),
        Err(error) => Err(LeafError::Content(error.to_string())),
    }
}
