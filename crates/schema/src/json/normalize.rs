//! The same rules as decoding, for a value that is already in memory: after a patch, or from YAML.

use std::borrow::Cow;

use serde_json::Map;

use super::decode::Problems;
use super::leaf::{self, Leaf, LeafError};
use super::members::Members;
use super::path::Path;
use super::{DecodeError, zero};
use crate::Value;
use crate::model::{Schema, SchemaAlternative, Shape, TypeId};
use crate::view::TypeRef;

type Result<T> = std::result::Result<T, DecodeError>;

/// Brings a value into the form that decoding gives, dropping unknown fields. Returns upstream's text for each of
/// them, in the order of the value's keys.
pub fn normalize(ty: TypeRef<'_>, value: &mut Value) -> Result<Vec<String>> {
    let mut normalizer = Normalizer {
        schema: ty.schema,
        problems: Problems::default(),
    };
    let shape = Shape::Struct(ty.id);
    *value = normalizer
        .value(shape, value.take(), &Path::ROOT)?
        .unwrap_or_else(|| zero(ty.schema, shape));
    Ok(normalizer.problems.list)
}

struct Normalizer<'s> {
    schema: &'s Schema,
    problems: Problems,
}

impl Normalizer<'_> {
    fn value(&mut self, shape: Shape, value: Value, path: &Path<'_>) -> Result<Option<Value>> {
        match (shape, value) {
            (_, Value::Null) => Ok(None),
            (Shape::Raw(_), value) => Ok(Some(value)),
            (Shape::Struct(id), Value::Object(map)) => self.object(id, map, path).map(Some),
            (Shape::Map(element), Value::Object(map)) => {
                let element = self.schema.element(element);
                self.map(element, map, path).map(Some)
            }
            (Shape::List(element) | Shape::WrappedList(element), Value::Array(items)) => {
                let element = self.schema.element(element);
                self.list(element, items, path).map(Some)
            }
            (Shape::SchemaOr(alternative, id), value @ (Value::Object(_) | Value::Array(_))) => {
                self.problems.muted += 1;
                let result = self.schema_or(alternative, id, value, path);
                self.problems.muted -= 1;
                result
            }
            (_, Value::Bool(value)) => self.leaf(shape, Leaf::Bool(value), path),
            (_, Value::Number(number)) => self.leaf(shape, Leaf::Number(Cow::Owned(number.to_string())), path),
            (_, Value::String(text)) => self.leaf(shape, Leaf::String(Cow::Owned(text)), path),
            (Shape::Quantity, _) => Err(DecodeError::Type(crate::quantity::QuantityError::Format.to_string())),
            (_, Value::Array(_)) => Err(self.wrong_type(shape, "array", leaf::wanted(shape), path)),
            (_, Value::Object(_)) => Err(self.wrong_type(shape, "object", leaf::wanted(shape), path)),
        }
    }

    fn object(&mut self, id: TypeId, map: Map<String, Value>, path: &Path<'_>) -> Result<Value> {
        let ty = self.schema.get(id);
        let mut members = Members::default();
        for (key, value) in map {
            let Some(position) = ty.position(&key) else {
                self.problems.report("unknown", || path.member(&key));
                continue;
            };
            let field = &ty.fields[position];
            if let Some(value) = self.value(field.shape, value, &path.field(id, field))? {
                members.put(field, position, value);
            }
        }
        Ok(Value::Object(members.finish(self.schema, id)))
    }

    fn map(&mut self, element: Shape, mut map: Map<String, Value>, path: &Path<'_>) -> Result<Value> {
        for (key, value) in &mut map {
            let normal = self.value(element, value.take(), &path.key(key))?;
            *value = normal.unwrap_or_else(|| zero(self.schema, element));
        }
        Ok(Value::Object(map))
    }

    fn list(&mut self, element: Shape, mut items: Vec<Value>, path: &Path<'_>) -> Result<Value> {
        for (index, value) in items.iter_mut().enumerate() {
            let normal = self.value(element, value.take(), &path.index(index))?;
            *value = normal.unwrap_or_else(|| zero(self.schema, element));
        }
        Ok(Value::Array(items))
    }

    fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
        value: Value,
        path: &Path<'_>,
    ) -> Result<Option<Value>> {
        let element = match alternative {
            SchemaAlternative::StringArray => Shape::String,
            SchemaAlternative::Array | SchemaAlternative::Bool => Shape::Struct(id),
        };
        match value {
            Value::Object(map) => self.object(id, map, path).map(Some),
            Value::Array(_) if alternative == SchemaAlternative::Bool => {
                Err(DecodeError::Type("boolean or JSON schema expected".to_owned()))
            }
            Value::Array(items) if items.is_empty() => Ok(Some(Value::Null)),
            Value::Array(items) => self.list(element, items, path).map(Some),
            other => Ok(Some(other)),
        }
    }

    fn leaf(&mut self, shape: Shape, leaf: Leaf<'_>, path: &Path<'_>) -> Result<Option<Value>> {
        match leaf::decode_leaf(shape, leaf) {
            Ok(value) => Ok(Some(value)),
            Err(LeafError::Content(message)) => Err(DecodeError::Type(message)),
            Err(LeafError::Type { found, wanted }) => Err(self.wrong_type(shape, &found, wanted, path)),
        }
    }

    fn wrong_type(&self, shape: Shape, found: &str, wanted: &str, path: &Path<'_>) -> DecodeError {
        let named = if wanted.is_empty() {
            self.schema.go_name(shape)
        } else {
            wanted.to_owned()
        };
        DecodeError::Type(path.type_error(self.schema, found, &named))
    }
}
