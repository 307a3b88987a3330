//! Bytes to a normalised value in one pass, guided by the schema.

use std::borrow::Cow;

use serde_json::Map;

use super::leaf::{self, Leaf, LeafError};
use super::members::Members;
use super::path::Path;
use super::reader::{Next, Reader, Result};
use super::{DecodeError, zero};
use crate::Value;
use crate::model::{ElementId, Schema, SchemaAlternative, Shape, TypeId};
use crate::view::TypeRef;

/// Problems beyond this are not reported, as upstream bounds them.
const MAX_PROBLEMS: usize = 100;

/// A decoded object and what strict decoding would complain about.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object as a round trip through upstream's structs would leave it.
    pub value: Value,
    /// Upstream's texts: `unknown field "spec.foo"`, `duplicate field "spec.replicas"`. Unknown fields are not in
    /// the value; of duplicates the last one is.
    pub problems: Vec<String>,
}

/// Reads an object of type `ty`.
pub fn decode_json(ty: TypeRef<'_>, data: &[u8]) -> Result<Decoded> {
    let mut decoder = Decoder {
        schema: ty.schema,
        reader: Reader::new(data),
        problems: Problems::default(),
        type_error: None,
        content_error: None,
    };
    let value = decoder.value(Shape::Struct(ty.id), &Path::ROOT)?;
    decoder.reader.end()?;
    if let Some(message) = decoder.content_error.or(decoder.type_error) {
        return Err(DecodeError::Type(message));
    }
    Ok(Decoded {
        value: value.unwrap_or_else(|| zero(ty.schema, Shape::Struct(ty.id))),
        problems: decoder.problems.list,
    })
}

#[derive(Default)]
pub(super) struct Problems {
    pub list: Vec<String>,
    /// Inside values that upstream reads with a lenient reader of their own, nothing is reported.
    pub muted: u32,
}

impl Problems {
    pub fn report(&mut self, problem: &str, path: impl FnOnce() -> String) {
        if self.muted > 0 || self.list.len() >= MAX_PROBLEMS {
            return;
        }
        let text = format!("{problem} field {}", crate::go::quote(&path()));
        if !self.list.contains(&text) {
            self.list.push(text);
        }
    }
}

struct Decoder<'s, 'd> {
    schema: &'s Schema,
    reader: Reader<'d>,
    problems: Problems,
    /// The first value of a wrong type. Reading goes on, because broken syntax further on would come first.
    type_error: Option<String>,
    /// The first value that does not parse; it comes before type errors.
    content_error: Option<String>,
}

impl<'s> Decoder<'s, '_> {
    /// `None` stands for null, and for a value that has been reported as an error.
    fn value(&mut self, shape: Shape, path: &Path<'_>) -> Result<Option<Value>> {
        if let Shape::Raw(_) = shape {
            let value = self.reader.any()?;
            return Ok((!value.is_null()).then_some(value));
        }
        let next = self.reader.next()?;
        match (shape, next) {
            (_, Next::Null) => Ok(None),
            (Shape::Struct(id), Next::Object) => self.object(id, path).map(Some),
            (Shape::Map(element), Next::Object) => self.map(element, path).map(Some),
            (Shape::List(element) | Shape::WrappedList(element), Next::Array) => self.list(element, path).map(Some),
            (Shape::SchemaOr(alternative, id), Next::Object | Next::Array) => {
                self.schema_or(alternative, id, next, path)
            }
            (_, Next::Bool(value)) => Ok(self.leaf(shape, Leaf::Bool(value), path)),
            (_, Next::Number) => {
                let text = self.reader.number()?;
                Ok(self.leaf(shape, Leaf::Number(Cow::Borrowed(text)), path))
            }
            (_, Next::String) => {
                let text = self.reader.string()?;
                Ok(self.leaf(shape, Leaf::String(text), path))
            }
            (_, Next::Array | Next::Object) => {
                let found = if next == Next::Array { "array" } else { "object" };
                self.unsuitable(shape, found, path);
                self.reader.skip(next)?;
                Ok(None)
            }
        }
    }

    fn object(&mut self, id: TypeId, path: &Path<'_>) -> Result<Value> {
        self.reader.begin()?;
        let ty = self.schema.get(id);
        let mut members = Members::default();
        let mut seen = 0u128;
        let mut first = true;
        while let Some(key) = self.reader.key(&mut first)? {
            let Some(position) = ty.position(&key) else {
                self.problems.report("unknown", || path.member(&key));
                let next = self.reader.next()?;
                self.reader.skip(next)?;
                continue;
            };
            let field = &ty.fields[position];
            let bit = 1u128.checked_shl(position as u32).unwrap_or(0);
            if seen & bit != 0 {
                self.problems.report("duplicate", || path.member(&key));
                members.take(position);
            }
            seen |= bit;
            if let Some(value) = self.value(field.shape, &path.field(id, field))? {
                members.put(field, position, value);
            }
        }
        Ok(Value::Object(members.finish(self.schema, id)))
    }

    fn map(&mut self, element: ElementId, path: &Path<'_>) -> Result<Value> {
        self.reader.begin()?;
        let element = self.schema.element(element);
        let mut map = Map::new();
        let mut first = true;
        while let Some(key) = self.reader.key(&mut first)? {
            if map.contains_key(&*key) {
                self.problems.report("duplicate", || path.member(&key));
            }
            let value = self.value(element, &path.key(&key))?;
            let value = value.unwrap_or_else(|| zero(self.schema, element));
            map.insert(key.into_owned(), value);
        }
        Ok(Value::Object(map))
    }

    fn list(&mut self, element: ElementId, path: &Path<'_>) -> Result<Value> {
        self.reader.begin()?;
        let element = self.schema.element(element);
        let mut items = Vec::new();
        let mut first = true;
        while self.reader.element(&mut first)? {
            let value = self.value(element, &path.index(items.len()))?;
            items.push(value.unwrap_or_else(|| zero(self.schema, element)));
        }
        Ok(Value::Array(items))
    }

    fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
        next: Next,
        path: &Path<'_>,
    ) -> Result<Option<Value>> {
        self.problems.muted += 1;
        let value = match (alternative, next) {
            (_, Next::Object) => self.object(id, path).map(Some),
            (SchemaAlternative::Bool, _) => {
                self.content_error
                    .get_or_insert("boolean or JSON schema expected".to_owned());
                self.reader.skip(next).map(|()| None)
            }
            (SchemaAlternative::Array, _) => self.items(Shape::Struct(id), path),
            (SchemaAlternative::StringArray, _) => self.items(Shape::String, path),
        };
        self.problems.muted -= 1;
        value
    }

    /// An array in the place of a schema; an empty one is as good as none.
    fn items(&mut self, element: Shape, path: &Path<'_>) -> Result<Option<Value>> {
        self.reader.begin()?;
        let mut items = Vec::new();
        let mut first = true;
        while self.reader.element(&mut first)? {
            let value = self.value(element, path)?;
            items.push(value.unwrap_or_else(|| zero(self.schema, element)));
        }
        Ok(Some(if items.is_empty() {
            Value::Null
        } else {
            Value::Array(items)
        }))
    }

    fn leaf(&mut self, shape: Shape, leaf: Leaf<'_>, path: &Path<'_>) -> Option<Value> {
        match leaf::decode_leaf(shape, leaf) {
            Ok(value) => Some(value),
            Err(LeafError::Content(message)) => {
                self.content_error.get_or_insert(message);
                None
            }
            Err(LeafError::Type { found, wanted }) => {
                self.wrong_type(shape, &found, wanted, path);
                None
            }
        }
    }

    fn unsuitable(&mut self, shape: Shape, found: &str, path: &Path<'_>) {
        if shape == Shape::Quantity {
            let message = crate::quantity::QuantityError::Format.to_string();
            self.content_error.get_or_insert(message);
        } else {
            self.wrong_type(shape, found, leaf::wanted(shape), path);
        }
    }

    fn wrong_type(&mut self, shape: Shape, found: &str, wanted: &str, path: &Path<'_>) {
        if self.type_error.is_none() {
            let named = if wanted.is_empty() {
                self.schema.go_name(shape)
            } else {
                wanted.to_owned()
            };
            self.type_error = Some(path.type_error(self.schema, found, &named));
        }
    }
}
