//! The in-memory form of the API's types.
//!
//! A [`Schema`] owns all types. They refer to each other by index, so recursion (a JSON schema inside a JSON schema)
//! costs nothing and a custom resource's schema can be put in the same form. Outside this crate types are walked through
//! the references in `view.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::Value;
use crate::view::{ShapeRef, TypeRef, View};

/// A set of types and the kinds among them.
#[derive(Debug)]
pub struct Schema {
    pub(crate) types: Vec<Type>,
    /// The element shapes of lists and maps, so that [`Shape`] stays small and copyable.
    pub(crate) elements: Vec<Shape>,
    /// All types in the order of their names.
    by_name: Vec<TypeId>,
    /// `group/version` to the kinds it serves.
    pub(crate) kinds: BTreeMap<String, BTreeMap<Cow<'static, str>, TypeId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementId(pub(crate) u32);

/// What a value may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    String,
    Bool,
    Int32,
    Int64,
    Float64,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// Any JSON, kept as it came.
    Raw(RawKind),
    Struct(TypeId),
    List(ElementId),
    /// A map with string keys.
    Map(ElementId),
    /// A list that protobuf wraps in a message of its own.
    WrappedList(ElementId),
    /// A JSON schema or something simpler in its place.
    SchemaOr(SchemaAlternative, TypeId),
}

/// Which message carries raw JSON; they differ only in protobuf and by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RawKind {
    RawExtension,
    FieldsV1,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaAlternative {
    Array,
    Bool,
    StringArray,
}

/// A struct of the API.
#[derive(Debug)]
pub struct Type {
    /// The name with its group and version, `core/v1.Pod`.
    pub name: Box<str>,
    /// All fields of the JSON object, those of inlined structs included, sorted by name.
    pub(crate) fields: Box<[Field]>,
    /// From a hash of the name to one more than the field's position; zero is an empty place.
    lookup: Box<[u8]>,
    /// The fields that appear in output even when they hold nothing.
    pub(crate) always: Box<[u16]>,
    /// The message's fields in the order of their tags.
    pub(crate) message: Box<[MessageField]>,
    /// Server-side apply replaces the struct as a whole.
    pub atomic: bool,
    /// The struct inlines TypeMeta: it is a kind.
    pub is_kind: bool,
    /// Not every field has a protobuf tag, so there is no message for this type.
    pub json_only: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageField {
    pub tag: u32,
    pub part: MessagePart,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MessagePart {
    Field(u16),
    /// A struct that is inlined in JSON but a message of its own in protobuf.
    Inline(TypeId),
}

/// A field of a struct, with everything any part of the engine needs to know about it.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: Cow<'static, str>,
    pub shape: Shape,
    /// Absent is distinct from zero.
    pub pointer: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    pub optional: bool,
    pub required: bool,
    /// The protobuf tag inside the struct that declares the field.
    pub tag: Option<u32>,
    pub patch: PatchStrategy,
    /// The key by which strategic merge patch matches list items.
    pub merge_key: Option<Cow<'static, str>>,
    pub list: ListType,
    /// The keys by which server-side apply matches list items.
    pub list_keys: Box<[Cow<'static, str>]>,
    /// Whether the field's map or struct is owned as a whole, where the field says so itself.
    pub atomic: Option<bool>,
    pub default: Option<Box<Value>>,
    /// The names of the inlined structs on the way to the field, as Go's error messages show them.
    pub(crate) inlined_by: Box<[Box<str>]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub retain_keys: bool,
    pub replace: bool,
}

/// How server-side apply treats a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

impl Schema {
    /// The struct of a kind, for example `("apps", "v1", "Deployment")`. The core group is `""`.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeRef<'_>> {
        let found = if group.is_empty() {
            self.kinds.get(version)
        } else {
            self.kinds.get(&format!("{group}/{version}"))
        };
        found?.get(kind).map(|&id| TypeRef { schema: self, id })
    }

    /// The struct of a kind by the object's own `apiVersion` and `kind`.
    pub fn object(&self, api_version: &str, kind: &str) -> Option<TypeRef<'_>> {
        let id = *self.kinds.get(api_version)?.get(kind)?;
        Some(TypeRef { schema: self, id })
    }

    /// A struct by its name with group and version, for example `core/v1.PodSpec`.
    pub fn named(&self, name: &str) -> Option<TypeRef<'_>> {
        let at = self
            .by_name
            .binary_search_by(|&id| (*self.get(id).name).cmp(name))
            .ok()?;
        let id = self.by_name[at];
        Some(TypeRef { schema: self, id })
    }

    /// Every kind with the `apiVersion` it is served under.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str, TypeRef<'_>)> {
        self.kinds.iter().flat_map(move |(api_version, kinds)| {
            kinds
                .iter()
                .map(move |(kind, &id)| (api_version.as_str(), &**kind, TypeRef { schema: self, id }))
        })
    }

    /// Every struct, in the order of the fact table.
    pub fn types(&self) -> impl Iterator<Item = TypeRef<'_>> {
        (0..self.types.len()).map(|index| TypeRef {
            schema: self,
            id: TypeId(index as u32),
        })
    }

    pub(crate) fn new(types: Vec<Type>, elements: Vec<Shape>) -> Self {
        let mut by_name: Vec<TypeId> = (0..types.len() as u32).map(TypeId).collect();
        by_name.sort_by(|a, b| types[a.0 as usize].name.cmp(&types[b.0 as usize].name));
        Schema {
            types,
            elements,
            by_name,
            kinds: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    pub(crate) fn element(&self, id: ElementId) -> Shape {
        self.elements[id.0 as usize]
    }

    pub(crate) fn view(&self, shape: Shape) -> View<'_> {
        match shape {
            Shape::Raw(kind) => View::Raw(kind),
            Shape::Struct(id) => View::Struct(TypeRef { schema: self, id }),
            Shape::List(id) | Shape::WrappedList(id) => View::List(self.shape(self.element(id))),
            Shape::Map(id) => View::Map(self.shape(self.element(id))),
            Shape::SchemaOr(alternative, id) => View::SchemaOr(alternative, TypeRef { schema: self, id }),
            leaf => View::Leaf(leaf),
        }
    }

    fn shape(&self, shape: Shape) -> ShapeRef<'_> {
        ShapeRef { schema: self, shape }
    }

    /// What the shape is called in Go, for error messages.
    pub(crate) fn go_name(&self, shape: Shape) -> String {
        match shape {
            Shape::String => "string".into(),
            Shape::Bool => "bool".into(),
            Shape::Int32 => "int32".into(),
            Shape::Int64 => "int64".into(),
            Shape::Float64 => "float64".into(),
            Shape::Bytes => "[]uint8".into(),
            Shape::Time => "v1.Time".into(),
            Shape::MicroTime => "v1.MicroTime".into(),
            Shape::Duration => "v1.Duration".into(),
            Shape::Quantity => "resource.Quantity".into(),
            Shape::IntOrString => "intstr.IntOrString".into(),
            Shape::Raw(RawKind::RawExtension) => "runtime.RawExtension".into(),
            Shape::Raw(RawKind::FieldsV1) => "v1.FieldsV1".into(),
            Shape::Raw(RawKind::Json) => "v1.JSON".into(),
            Shape::Struct(id) => self.get(id).go_name(),
            Shape::List(id) | Shape::WrappedList(id) => format!("[]{}", self.go_name(self.element(id))),
            Shape::Map(id) => format!("map[string]{}", self.go_name(self.element(id))),
            Shape::SchemaOr(SchemaAlternative::Array, _) => "v1.JSONSchemaPropsOrArray".into(),
            Shape::SchemaOr(SchemaAlternative::Bool, _) => "v1.JSONSchemaPropsOrBool".into(),
            Shape::SchemaOr(SchemaAlternative::StringArray, _) => "v1.JSONSchemaPropsOrStringArray".into(),
        }
    }
}

impl Type {
    /// The name without group and version.
    pub fn short_name(&self) -> &str {
        self.name.rsplit_once('.').map_or(&*self.name, |(_, short)| short)
    }

    pub(crate) fn go_name(&self) -> String {
        self.name
            .rsplit_once('/')
            .map_or(&*self.name, |(_, rest)| rest)
            .to_owned()
    }

    pub(crate) fn new(
        name: Box<str>,
        fields: Vec<Field>,
        message: Vec<MessageField>,
        atomic: bool,
        is_kind: bool,
        json_only: bool,
    ) -> Self {
        let always = (0..fields.len() as u16).filter(|&at| fields[at as usize].always_present());
        Type {
            name,
            lookup: lookup_table(&fields),
            always: always.collect(),
            message: message.into(),
            fields: fields.into(),
            atomic,
            is_kind,
            json_only,
        }
    }

    /// Where the field of this name stands. Types with more fields than a byte can number are searched.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        if self.lookup.is_empty() {
            return self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok();
        }
        let mut at = hash(name) & (self.lookup.len() - 1);
        loop {
            let position = usize::from(self.lookup[at]).checked_sub(1)?;
            if self.fields[position].name == name {
                return Some(position);
            }
            at = (at + 1) & (self.lookup.len() - 1);
        }
    }
}

/// Open addressing with at least half of the places empty, so that a search is one comparison most of the time.
fn lookup_table(fields: &[Field]) -> Box<[u8]> {
    if fields.len() >= usize::from(u8::MAX) {
        return Box::default();
    }
    let mut table = vec![0; (fields.len() * 2 + 1).next_power_of_two()].into_boxed_slice();
    for (position, field) in fields.iter().enumerate() {
        let mut at = hash(&field.name) & (table.len() - 1);
        while table[at] != 0 {
            at = (at + 1) & (table.len() - 1);
        }
        table[at] = position as u8 + 1;
    }
    table
}

/// Cheap, and good enough for field names: they differ in length, in their ends or in the middle.
fn hash(name: &str) -> usize {
    let bytes = name.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else {
        return 0;
    };
    let middle = bytes[bytes.len() / 2];
    let mixed = usize::from(first) * 31 + usize::from(last) * 131 + usize::from(middle) * 7 + bytes.len();
    mixed ^ (mixed >> 5)
}

/// Lists that are given a default where they are left out, and refused where they are empty.
const KEPT_EMPTY: &[&str] = &["policies"];

impl Field {
    /// Go drops the value from output when it is zero: `omitempty` knows scalars, lists and maps, not structs.
    pub(crate) fn omits(&self, value: &Value) -> bool {
        if self.omit_zero && value.is_null() {
            return true;
        }
        self.omit_empty
            && !self.pointer
            && match self.shape {
                Shape::String | Shape::Bytes => value.as_str().is_none_or(str::is_empty),
                Shape::Bool => value != &Value::Bool(true),
                Shape::Int32 | Shape::Int64 => value.as_i64().is_none_or(|number| number == 0),
                Shape::Float64 => value.as_f64().is_none_or(|number| number == 0.0),
                Shape::List(_) | Shape::WrappedList(_) => value
                    .as_array()
                    .is_none_or(|items| items.is_empty() && !KEPT_EMPTY.contains(&&*self.name)),
                Shape::Map(_) => value.as_object().is_none_or(|map| map.is_empty()),
                _ => false,
            }
    }

    /// Whether the field appears in output even when it holds its zero value.
    pub(crate) fn always_present(&self) -> bool {
        let is_struct = !matches!(
            self.shape,
            Shape::String
                | Shape::Bool
                | Shape::Int32
                | Shape::Int64
                | Shape::Float64
                | Shape::Bytes
                | Shape::List(_)
                | Shape::WrappedList(_)
                | Shape::Map(_)
        );
        if is_struct && !self.pointer {
            !self.omit_zero
        } else {
            !self.omit_empty
        }
    }
}
