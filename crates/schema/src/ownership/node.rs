//! How values are owned: whole, field by field, or item by item.
//!
//! A [`Node`] is a place in a schema; with the value that stands there it gives an [`Atom`]. Built-in kinds are read
//! straight from the fact table, custom ones from a [`Tree`] made from their definition.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::set::Element;
use crate::Value;
use crate::model::{Field, ListType, RawKind, Schema, Shape};
use crate::view::TypeRef;

/// A position in a schema, from which the owned fields below it are found.
#[derive(Clone, Copy)]
pub struct Node<'s>(NodeSchema<'s>);

#[derive(Clone, Copy)]
enum NodeSchema<'s> {
    Table {
        schema: &'s Schema,
        shape: Shape,
        /// The field that holds the value, which may say more about it than its type does.
        field: Option<&'s Field>,
    },
    Custom(&'s Tree),
    /// No schema: objects are owned by key, everything else whole.
    Deduced,
}

/// The ownership of a custom resource's fields.
#[derive(Clone, Debug)]
pub enum Tree {
    Scalar(Scalar),
    Object {
        fields: BTreeMap<String, Tree>,
        /// What other keys hold; `None` when there must be none.
        rest: Option<Box<Tree>>,
        atomic: bool,
    },
    List {
        item: Box<Tree>,
        kind: ListType,
        /// The keys of a map-like list, sorted, each with the default of its field.
        keys: Vec<(String, Option<Value>)>,
    },
    /// A type of the fact table, such as the object's metadata.
    Table(TypeRef<'static>),
    Deduced,
}

/// What a scalar may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

/// How the value at a node is owned.
pub(super) enum Atom<'s> {
    Scalar(Scalar),
    /// A map or list that is owned whole.
    Whole(Inner<'s>),
    Map(Children<'s>),
    List(Items<'s>),
}

/// What is in a map or list that is owned whole; only checks look into it.
pub(super) enum Inner<'s> {
    Map(Children<'s>),
    List(Node<'s>),
    Any,
}

#[derive(Clone, Copy)]
pub(super) enum Children<'s> {
    Struct(TypeRef<'s>),
    Map(Node<'s>),
    Object(&'s BTreeMap<String, Tree>, Option<&'s Tree>),
}

#[derive(Clone, Copy)]
pub(super) struct Items<'s> {
    pub item: Node<'s>,
    keys: Keys<'s>,
}

#[derive(Clone, Copy)]
enum Keys<'s> {
    /// Items are their own keys.
    Set,
    Table(&'s [Cow<'static, str>], Option<TypeRef<'s>>),
    Custom(&'s [(String, Option<Value>)]),
}

impl<'s> Node<'s> {
    pub const DEDUCED: Node<'static> = Node(NodeSchema::Deduced);

    /// The root of a built-in kind.
    pub fn for_type(ty: TypeRef<'s>) -> Node<'s> {
        Node(NodeSchema::Table {
            schema: ty.schema,
            shape: Shape::Struct(ty.id),
            field: None,
        })
    }

    /// The root of a custom kind.
    pub fn custom(tree: &'s Tree) -> Node<'s> {
        match tree {
            Tree::Table(ty) => Node::for_type(*ty),
            Tree::Deduced => Node::DEDUCED,
            tree => Node(NodeSchema::Custom(tree)),
        }
    }

    /// An object of this kind before anything is written to it.
    pub fn empty(self) -> Value {
        match self.0 {
            NodeSchema::Table { schema, shape, .. } => crate::json::zero(schema, shape),
            _ => Value::Object(serde_json::Map::new()),
        }
    }

    pub(super) fn atom(self, value: &Value) -> Atom<'s> {
        match self.0 {
            NodeSchema::Table { schema, shape, field } => table_atom(schema, shape, field, value),
            NodeSchema::Custom(tree) => tree.atom(value),
            NodeSchema::Deduced => deduced(value),
        }
    }
}

fn deduced<'s>(value: &Value) -> Atom<'s> {
    match value {
        Value::Object(_) => Atom::Map(Children::Map(Node::DEDUCED)),
        Value::Array(_) => Atom::Whole(Inner::Any),
        _ => Atom::Scalar(Scalar::Untyped),
    }
}

fn table_atom<'s>(schema: &'s Schema, shape: Shape, field: Option<&'s Field>, value: &Value) -> Atom<'s> {
    let place = |shape| {
        Node(NodeSchema::Table {
            schema,
            shape,
            field: None,
        })
    };
    match shape {
        Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Duration => Atom::Scalar(Scalar::String),
        Shape::Bool => Atom::Scalar(Scalar::Boolean),
        Shape::Int32 | Shape::Int64 | Shape::Float64 => Atom::Scalar(Scalar::Numeric),
        Shape::Quantity | Shape::IntOrString => Atom::Scalar(Scalar::Untyped),
        Shape::Raw(RawKind::RawExtension) => Atom::Whole(Inner::Any),
        Shape::Raw(_) | Shape::SchemaOr(..) => deduced(value),
        Shape::Struct(id) => {
            let ty = TypeRef { schema, id };
            let whole = field.and_then(|field| field.atomic).unwrap_or(ty.atomic);
            match whole {
                true => Atom::Whole(Inner::Map(Children::Struct(ty))),
                false => Atom::Map(Children::Struct(ty)),
            }
        }
        Shape::Map(element) => {
            let children = Children::Map(place(schema.element(element)));
            match field.and_then(|field| field.atomic) {
                Some(true) => Atom::Whole(Inner::Map(children)),
                _ => Atom::Map(children),
            }
        }
        Shape::List(element) | Shape::WrappedList(element) => {
            let element = schema.element(element);
            let (item, of) = match element {
                Shape::Struct(id) => (place(element), Some(TypeRef { schema, id })),
                _ => (place(element), None),
            };
            match field.map_or(ListType::Atomic, |field| field.list) {
                ListType::Atomic => Atom::Whole(Inner::List(item)),
                ListType::Set => Atom::List(Items { item, keys: Keys::Set }),
                ListType::Map => {
                    let keys = Keys::Table(field.map_or(&[], |field| &field.list_keys), of);
                    Atom::List(Items { item, keys })
                }
            }
        }
    }
}

impl Tree {
    fn atom(&self, value: &Value) -> Atom<'_> {
        match self {
            Tree::Scalar(scalar) => Atom::Scalar(*scalar),
            Tree::Object { fields, rest, atomic } => {
                let children = Children::Object(fields, rest.as_deref());
                match atomic {
                    true => Atom::Whole(Inner::Map(children)),
                    false => Atom::Map(children),
                }
            }
            Tree::List { item, kind, keys } => {
                let item = Node::custom(item);
                match kind {
                    ListType::Atomic => Atom::Whole(Inner::List(item)),
                    ListType::Set => Atom::List(Items { item, keys: Keys::Set }),
                    ListType::Map => Atom::List(Items {
                        item,
                        keys: Keys::Custom(keys),
                    }),
                }
            }
            Tree::Table(ty) => Node::for_type(*ty).atom(value),
            Tree::Deduced => deduced(value),
        }
    }
}

impl<'s> Children<'s> {
    /// The node of a key, and whether the schema names it: what is named is owned through its fields, what is only
    /// a key of a map is owned itself too.
    pub fn get(self, key: &str) -> Option<(Node<'s>, bool)> {
        match self {
            Children::Struct(ty) => {
                let schema = ty.schema;
                let of = schema.get(ty.id);
                let field = &of.fields[of.position(key)?];
                let place = NodeSchema::Table {
                    schema,
                    shape: field.shape,
                    field: Some(field),
                };
                Some((Node(place), true))
            }
            Children::Map(node) => Some((node, false)),
            Children::Object(fields, rest) => match fields.get(key) {
                Some(tree) => Some((Node::custom(tree), true)),
                None => rest.map(|tree| (Node::custom(tree), false)),
            },
        }
    }

    /// The same for values that are stored already, where what the schema does not know is taken as it is.
    pub fn stored(self, key: &str) -> (Node<'s>, bool) {
        self.get(key).unwrap_or((Node::DEDUCED, false))
    }
}

impl<'s> Items<'s> {
    /// The element of an item, or `None` when the item has none of the list's keys.
    pub fn element<'a>(self, item: &'a Value) -> Option<Element<'a>> {
        match self.keys {
            Keys::Set => Some(Element::Value(item.to_string().into())),
            Keys::Table(names, ty) => keyed(
                item,
                names
                    .iter()
                    .map(|name| (&**name, ty.and_then(|ty| key_default(ty, name)))),
            ),
            Keys::Custom(keys) => keyed(
                item,
                keys.iter()
                    .map(|(name, default)| (name.as_str(), default.as_ref().map(Cow::Borrowed))),
            ),
        }
    }

    pub fn key_names(self) -> Vec<String> {
        match self.keys {
            Keys::Set => Vec::new(),
            Keys::Table(names, _) => names.iter().map(|name| name.to_string()).collect(),
            Keys::Custom(keys) => keys.iter().map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// A key that is left out has its default; fields that are always written default to their zero.
fn key_default<'s>(ty: TypeRef<'s>, name: &str) -> Option<Cow<'s, Value>> {
    let of = ty.schema.get(ty.id);
    let field = &of.fields[of.position(name)?];
    match &field.default {
        Some(default) => Some(Cow::Borrowed(&**default)),
        None if !field.pointer && !field.omit_empty => Some(Cow::Owned(crate::json::zero(ty.schema, field.shape))),
        None => None,
    }
}

fn keyed<'a, 'k>(item: &Value, keys: impl Iterator<Item = (&'k str, Option<Cow<'k, Value>>)>) -> Option<Element<'a>> {
    let mut found: Vec<(&str, Cow<'_, Value>)> = Vec::with_capacity(2);
    for (name, default) in keys {
        let value = item.get(name).map(Cow::Borrowed).or(default);
        found.extend(value.map(|value| (name, value)));
    }
    if found.is_empty() {
        return None;
    }
    found.sort_by(|a, b| a.0.cmp(b.0));
    let mut text = String::with_capacity(32);
    for (name, value) in found {
        text.push_str(if text.is_empty() { "{\"" } else { ",\"" });
        text.push_str(name);
        text.push_str("\":");
        text.push_str(&value.to_string());
    }
    text.push('}');
    Some(Element::Key(text.into()))
}
