//! Values while an expression runs.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use schema::quantity::Quantity;
use serde_json::Value as Json;

use crate::Type;
use crate::functions::authorizer::{Outcome, Request};
use crate::functions::semver::Version;
use crate::functions::url::Url;

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<Vec<Value>>),
    Map(Arc<BTreeMap<Key, Value>>),
    /// Nanoseconds since 1970.
    Timestamp(i128),
    /// Nanoseconds.
    Duration(i64),
    Type(Arc<str>),
    Optional(Option<Arc<Value>>),
    /// `Object{…}` or `JSONPatch{…}`.
    Struct(Arc<str>, Arc<BTreeMap<Key, Value>>),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Quantity(Arc<Quantity>),
    Semver(Arc<Version>),
    Url(Arc<Url>),
    /// The name of a format.
    Format(&'static str),
    /// A question to the authorizer that is being built.
    Authorizer(Arc<Request>),
    Decision(Arc<Outcome>),
}

/// The key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Bool(bool),
    /// Signed and unsigned numbers are the same keys.
    Number(i128),
    String(Arc<str>),
}

impl Value {
    pub fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Arc::new(items))
    }

    pub fn optional(value: Option<Value>) -> Value {
        Value::Optional(value.map(Arc::new))
    }

    /// A map with texts as keys.
    pub fn record<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
        let entries = entries.into_iter().map(|(key, value)| (Key::String(key.into()), value));
        Value::Map(Arc::new(entries.collect()))
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_true(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    pub fn from_json(json: &Json) -> Value {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Int(value),
                (None, Some(value)) => Value::Uint(value),
                (None, None) => Value::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Value::text(text),
            Json::Array(items) => Value::list(items.iter().map(Value::from_json).collect()),
            Json::Object(fields) => {
                let entries = fields
                    .iter()
                    .map(|(key, value)| (Key::String(key.as_str().into()), Value::from_json(value)));
                Value::Map(Arc::new(entries.collect()))
            }
        }
    }

    /// The value as JSON; values that JSON cannot hold become their text.
    pub fn to_json(&self) -> Json {
        match self {
            Value::Null | Value::Optional(None) => Json::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => (*value).into(),
            Value::Optional(Some(value)) => value.to_json(),
            Value::List(items) => items.iter().map(Value::to_json).collect(),
            Value::Map(entries) | Value::Struct(_, entries) => {
                let entries = entries.iter().map(|(key, value)| (key.to_string(), value.to_json()));
                Json::Object(entries.collect())
            }
            other => crate::functions::convert::to_text(other).unwrap_or_default().into(),
        }
    }

    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Timestamp(_) => Type::Timestamp,
            Value::Duration(_) => Type::Duration,
            Value::Type(_) => Type::Type,
            Value::Optional(_) => Type::Optional(Box::new(Type::Dyn)),
            Value::Struct(..) => Type::map(Type::String, Type::Dyn),
            Value::Ip(_) => Type::parse("ip"),
            Value::Cidr(..) => Type::parse("cidr"),
            Value::Quantity(_) => Type::parse("quantity"),
            Value::Semver(_) => Type::parse("semver"),
            Value::Url(_) => Type::parse("url"),
            Value::Format(_) => Type::parse("format"),
            Value::Authorizer(request) => Type::parse(request.type_name()),
            Value::Decision(_) => Type::parse("decision"),
        }
    }

    /// What `type(value)` is called.
    pub fn type_name(&self) -> String {
        match self {
            Value::Null => "null_type".to_owned(),
            Value::List(_) => "list".to_owned(),
            Value::Map(_) => "map".to_owned(),
            Value::Timestamp(_) => "google.protobuf.Timestamp".to_owned(),
            Value::Duration(_) => "google.protobuf.Duration".to_owned(),
            Value::Optional(_) => "optional_type".to_owned(),
            Value::Struct(name, _) => name.to_string(),
            other => other.type_of().to_string(),
        }
    }

    /// The order of two values of one kind, numbers of all kinds being one.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        Some(match (self, other) {
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (Value::String(one), Value::String(other)) => one.cmp(other),
            (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
            (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
            (Value::Duration(one), Value::Duration(other)) => one.cmp(other),
            (Value::Double(one), Value::Double(other)) => return one.partial_cmp(other),
            (Value::Double(one), other) => return one.partial_cmp(&(other.integer()? as f64)),
            (one, Value::Double(other)) => return (one.integer()? as f64).partial_cmp(other),
            (one, other) => one.integer()?.cmp(&other.integer()?),
        })
    }

    pub fn integer(&self) -> Option<i128> {
        match self {
            Value::Int(value) => Some(i128::from(*value)),
            Value::Uint(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    pub fn equals(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::List(one), Value::List(other)) => {
                one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| one.equals(other))
            }
            (Value::Map(one) | Value::Struct(_, one), Value::Map(other) | Value::Struct(_, other)) => {
                let same = |(key, value): (&Key, &Value)| other.get(key).is_some_and(|other| value.equals(other));
                one.len() == other.len() && one.iter().all(same)
            }
            (Value::Type(one), Value::Type(other)) => one == other,
            (Value::Optional(one), Value::Optional(other)) => match (one, other) {
                (None, None) => true,
                (Some(one), Some(other)) => one.equals(other),
                _ => false,
            },
            (Value::Ip(one), Value::Ip(other)) => one == other,
            (Value::Cidr(one, bits), Value::Cidr(other, other_bits)) => one == other && bits == other_bits,
            (Value::Quantity(one), Value::Quantity(other)) => one.cmp(other) == Ordering::Equal,
            (Value::Semver(one), Value::Semver(other)) => one.compare(other) == Ordering::Equal,
            (Value::Url(one), Value::Url(other)) => one == other,
            (Value::Format(one), Value::Format(other)) => one == other,
            (one, other) => one.compare(other) == Some(Ordering::Equal),
        }
    }

    pub fn to_key(&self) -> Option<Key> {
        Some(match self {
            Value::Bool(value) => Key::Bool(*value),
            Value::String(text) => Key::String(text.clone()),
            Value::Double(value) if value.fract() == 0.0 && value.is_finite() => Key::Number(*value as i128),
            other => Key::Number(other.integer()?),
        })
    }
}

impl Key {
    pub fn to_value(&self) -> Value {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::String(text) => Value::String(text.clone()),
            Key::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(value), _) => Value::Int(value),
                (Err(_), Ok(value)) => Value::Uint(value),
                (Err(_), Err(_)) => Value::Double(*number as f64),
            },
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Bool(value) => write!(formatter, "{value}"),
            Key::Number(value) => write!(formatter, "{value}"),
            Key::String(text) => formatter.write_str(text),
        }
    }
}
