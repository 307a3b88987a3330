//! References into a schema: two words each, copyable, and walkable from a type to its fields to their types.

use std::fmt;
use std::ops::Deref;

use crate::model::{Field, RawKind, Schema, SchemaAlternative, Shape, Type, TypeId};

/// A struct of a schema: cheap to copy, walkable by its fields.
#[derive(Clone, Copy)]
pub struct TypeRef<'s> {
    pub(crate) schema: &'s Schema,
    pub(crate) id: TypeId,
}

/// A field together with the schema it belongs to.
#[derive(Clone, Copy)]
pub struct FieldRef<'s> {
    schema: &'s Schema,
    field: &'s Field,
}

/// A shape with its references resolved.
#[derive(Clone, Copy, Debug)]
pub enum View<'s> {
    /// A leaf: a scalar, or a struct that is a string or number in JSON.
    Leaf(Shape),
    /// Any JSON.
    Raw(RawKind),
    Struct(TypeRef<'s>),
    List(ShapeRef<'s>),
    Map(ShapeRef<'s>),
    SchemaOr(SchemaAlternative, TypeRef<'s>),
}

#[derive(Clone, Copy)]
pub struct ShapeRef<'s> {
    pub(crate) schema: &'s Schema,
    pub shape: Shape,
}

impl<'s> TypeRef<'s> {
    pub fn schema(self) -> &'s Schema {
        self.schema
    }

    pub fn fields(self) -> impl Iterator<Item = FieldRef<'s>> {
        let schema = self.schema;
        let fields: &'s [Field] = &schema.get(self.id).fields;
        fields.iter().map(move |field| FieldRef { schema, field })
    }

    pub fn field(self, name: &str) -> Option<FieldRef<'s>> {
        let ty = self.schema.get(self.id);
        let field = &ty.fields[ty.position(name)?];
        Some(FieldRef {
            schema: self.schema,
            field,
        })
    }
}

impl Deref for TypeRef<'_> {
    type Target = Type;

    fn deref(&self) -> &Type {
        self.schema.get(self.id)
    }
}

impl PartialEq for TypeRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.schema, other.schema) && self.id == other.id
    }
}

impl Eq for TypeRef<'_> {}

impl fmt::Debug for TypeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<'s> FieldRef<'s> {
    pub fn view(self) -> View<'s> {
        self.schema.view(self.field.shape)
    }

    /// The key by which strategic merge patch matches the list's items.
    pub fn merge_key(self) -> Option<&'s str> {
        self.field.merge_key.as_deref()
    }

    /// The struct of the field's value, or of its items where it is a list or map.
    pub fn target(self) -> Option<TypeRef<'s>> {
        match self.view() {
            View::Struct(ty) => Some(ty),
            View::List(element) | View::Map(element) => match element.view() {
                View::Struct(ty) => Some(ty),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Deref for FieldRef<'_> {
    type Target = Field;

    fn deref(&self) -> &Field {
        self.field
    }
}

impl fmt::Debug for FieldRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.schema.go_name(self.shape))
    }
}

impl<'s> ShapeRef<'s> {
    pub fn view(self) -> View<'s> {
        self.schema.view(self.shape)
    }
}

impl fmt::Debug for ShapeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.schema.go_name(self.shape))
    }
}
