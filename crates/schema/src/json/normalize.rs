//! The same rules as decoding, for a value that is already in memory: after a patch, or from YAML.

use std::borrow::Cow;

use serde_json::Map;

use super::decode::Problems;
use super::leaf::{self, Leaf, LeafError};
use super::members::empty;
use super::path::Path;
use super::{DecodeError, zero};
use crate::Value;
use crate::model::{Schema, SchemaAlternative, Shape, TypeId};
use crate::view::TypeRef;

type Result<T> = std::result::Result<T, DecodeError>;

/// Brings a value into the form that decoding gives, dropping unknown fields. Returns upstream's text for each of
/// them, in the order of the value's keys. Most values have the form already, so it is changed in place. After an error
/// a part of it may have been.
pub fn normalize(ty: TypeRef<'_>, value: &mut Value) -> Result<Vec<String>> {
    let mut normalizer = Normalizer {
        schema: ty.schema,
        problems: Problems::default(),
    };
    normalizer.present(Shape::Struct(ty.id), value, &Path::ROOT)?;
    Ok(normalizer.problems.list)
}

struct Normalizer<'s> {
    schema: &'s Schema,
    problems: Problems,
}

impl Normalizer<'_> {
    /// What cannot be left out: null becomes the zero value.
    fn present(&mut self, shape: Shape, value: &mut Value, path: &Path<'_>) -> Result<()> {
        if !self.value(shape, value, path)? {
            *value = zero(self.schema, shape);
        }
        Ok(())
    }

    /// Says whether there is a value: `false` stands for null.
    fn value(&mut self, shape: Shape, value: &mut Value, path: &Path<'_>) -> Result<bool> {
        match (shape, &mut *value) {
            (_, Value::Null) => return Ok(false),
            (Shape::Raw(_), _) => {}
            (Shape::Struct(id), Value::Object(map)) => self.object(id, map, path)?,
            (Shape::Map(element), Value::Object(map)) => {
                let element = self.schema.element(element);
                for (key, value) in map {
                    self.present(element, value, &path.key(key))?;
                }
            }
            (Shape::List(element) | Shape::WrappedList(element), Value::Array(items)) => {
                self.list(self.schema.element(element), items, path)?;
            }
            (Shape::SchemaOr(alternative, id), Value::Object(_) | Value::Array(_)) => {
                self.problems.muted += 1;
                let result = self.schema_or(alternative, id, value, path);
                self.problems.muted -= 1;
                result?;
            }
            (Shape::Quantity, Value::Array(_) | Value::Object(_)) => {
                return Err(DecodeError::Type(crate::quantity::QuantityError::Format.to_string()));
            }
            (_, Value::Array(_)) => return Err(self.wrong_type(shape, "array", leaf::wanted(shape), path)),
            (_, Value::Object(_)) => return Err(self.wrong_type(shape, "object", leaf::wanted(shape), path)),
            (_, leaf) if is_canonical(shape, leaf) => {}
            (_, Value::Bool(found)) => *value = self.leaf(shape, Leaf::Bool(*found), path)?,
            (_, Value::Number(number)) => {
                *value = self.leaf(shape, Leaf::Number(Cow::Owned(number.to_string())), path)?;
            }
            (_, Value::String(text)) => {
                let text = std::mem::take(text);
                *value = self.leaf(shape, Leaf::String(Cow::Owned(text)), path)?;
            }
        }
        Ok(true)
    }

    fn object(&mut self, id: TypeId, map: &mut Map<String, Value>, path: &Path<'_>) -> Result<()> {
        let ty = self.schema.get(id);
        let mut failed = None;
        map.retain(|key, value| {
            let Some(position) = ty.position(key) else {
                self.problems.report("unknown", || path.member(key));
                return false;
            };
            let field = &ty.fields[position];
            if failed.is_some() {
                return true;
            }
            match self.value(field.shape, value, &path.field(id, field)) {
                Ok(there) => there && !field.omits(value),
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        for &position in &ty.always {
            let field = &ty.fields[usize::from(position)];
            if !map.contains_key(&*field.name) {
                map.insert(field.name.to_string(), empty(self.schema, field));
            }
        }
        Ok(())
    }

    fn list(&mut self, element: Shape, items: &mut [Value], path: &Path<'_>) -> Result<()> {
        for (index, value) in items.iter_mut().enumerate() {
            self.present(element, value, &path.index(index))?;
        }
        Ok(())
    }

    fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
        value: &mut Value,
        path: &Path<'_>,
    ) -> Result<()> {
        let element = match alternative {
            SchemaAlternative::StringArray => Shape::String,
            SchemaAlternative::Array | SchemaAlternative::Bool => Shape::Struct(id),
        };
        match value {
            Value::Object(map) => self.object(id, map, path),
            Value::Array(_) if alternative == SchemaAlternative::Bool => {
                Err(DecodeError::Type("boolean or JSON schema expected".to_owned()))
            }
            Value::Array(items) if items.is_empty() => {
                *value = Value::Null;
                Ok(())
            }
            Value::Array(items) => self.list(element, items, path),
            _ => Ok(()),
        }
    }

    fn leaf(&mut self, shape: Shape, leaf: Leaf<'_>, path: &Path<'_>) -> Result<Value> {
        match leaf::decode_leaf(shape, leaf) {
            Ok(value) => Ok(value),
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

/// Whether a leaf needs no decoding to know that it would stay as it is.
fn is_canonical(shape: Shape, leaf: &Value) -> bool {
    match (shape, leaf) {
        (Shape::String | Shape::IntOrString, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => true,
        (Shape::Int32 | Shape::IntOrString, Value::Number(number)) => {
            number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        (Shape::Int64, Value::Number(number)) => number.is_i64(),
        _ => false,
    }
}
