//! The fact table and its reading.
//!
//! `facts/` holds one file per group and version, one block per struct, one line per field. The text is compiled in
//! and read once, on first use, in about a millisecond.

mod sources;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use self::sources::{EMPTY_STRUCTS, EVERYWHERE, NAMED_DEFAULTS, SOURCES, Source, UNVERSIONED};
use crate::Value;
use crate::model::{
    ElementId, Field, ListType, MessageField, MessagePart, PatchStrategy, RawKind, Schema, SchemaAlternative, Shape,
    Type, TypeId,
};

/// The schema of every built-in type.
pub fn builtin() -> &'static Schema {
    static BUILTIN: OnceLock<Schema> = OnceLock::new();
    BUILTIN.get_or_init(|| Builder::new().build())
}

/// Gives up on the fact table, which is part of the program: every line of it is read whenever any test reads an object.
#[expect(
    clippy::panic,
    reason = "the text is compiled in; a mistake in it fails every test and never depends on input"
)]
fn broken(problem: fmt::Arguments<'_>) -> ! {
    panic!("fact table: {problem}")
}

/// A struct as its block says, before the structs it inlines are flattened into it.
struct Block {
    name: Box<str>,
    atomic: bool,
    fields: Vec<Field>,
    inlines: Vec<Inline>,
}

#[derive(Clone, Copy)]
struct Inline {
    target: TypeId,
    tag: Option<u32>,
}

/// The names of one source's structs, sorted, with their indexes.
struct Names {
    source: &'static str,
    types: Vec<(&'static str, TypeId)>,
}

struct Builder {
    names: Vec<Names>,
    elements: Vec<Shape>,
    element_ids: HashMap<Shape, ElementId>,
}

impl Builder {
    fn new() -> Self {
        let mut next = 0;
        let mut names: Vec<Names> = SOURCES.iter().map(|source| Names::read(source, &mut next)).collect();
        for (source, short) in EMPTY_STRUCTS {
            if let Some(names) = names.iter_mut().find(|names| names.source == *source) {
                names.types.push((short, TypeId(next)));
                names.types.sort_unstable();
            }
            next += 1;
        }
        Builder {
            names,
            elements: Vec::new(),
            element_ids: HashMap::new(),
        }
    }

    fn build(mut self) -> Schema {
        let mut blocks: Vec<Block> = Vec::with_capacity(700);
        for source in SOURCES {
            self.read(source, &mut blocks);
        }
        blocks.extend(EMPTY_STRUCTS.iter().map(|(source, short)| Block::new(source, short)));
        let inlined: Vec<Vec<Field>> = (0..blocks.len()).map(|index| inlined_fields(&blocks, index)).collect();
        let types = blocks
            .into_iter()
            .zip(inlined)
            .map(|(block, inlined)| block.finish(inlined))
            .collect();
        let mut schema = Schema::new(types, self.elements);
        register_kinds(&mut schema, &self.names);
        schema
    }

    fn read(&mut self, source: &Source, blocks: &mut Vec<Block>) {
        for line in lines(source) {
            let Some(line) = line.strip_prefix("  ") else {
                let (short, flags) = line.split_once(' ').unwrap_or((line, ""));
                let mut block = Block::new(source.name, short);
                block.atomic = flags == "struct=atomic";
                blocks.push(block);
                continue;
            };
            let Some(block) = blocks.last_mut() else { continue };
            let mut words = Words(line);
            let (name, type_text, tag) = (words.take(), words.take(), words.take().parse().ok());
            let (pointer, type_text) = match type_text.strip_prefix('?') {
                Some(rest) => (true, rest),
                None => (false, type_text),
            };
            let shape = self.shape(source, type_text);
            match (name, shape) {
                ("<inline>", Shape::Struct(target)) => block.inlines.push(Inline { target, tag }),
                ("<inline>", _) => broken(format_args!("{type_text} cannot be inlined")),
                _ => block.fields.push(field(name, shape, pointer, tag, words)),
            }
        }
    }

    fn shape(&mut self, source: &Source, text: &'static str) -> Shape {
        if let Some(rest) = text.strip_prefix("[]") {
            let element = self.shape(source, rest);
            return Shape::List(self.element(element));
        }
        if let Some(rest) = text.strip_prefix("map[string]") {
            let element = self.shape(source, rest);
            return Shape::Map(self.element(element));
        }
        if let Some(rest) = text.strip_prefix("Items<").and_then(|rest| rest.strip_suffix('>')) {
            let element = self.shape(source, rest);
            return Shape::WrappedList(self.element(element));
        }
        let (of, short) = match text.rsplit_once('.') {
            Some(("metav1", short)) => ("meta/v1", short),
            Some(found) => found,
            None => (source.name, text),
        };
        leaf(short)
            .or_else(|| self.schema_alternative(source, short))
            .unwrap_or_else(|| Shape::Struct(self.resolve(of, short)))
    }

    fn schema_alternative(&self, source: &Source, text: &str) -> Option<Shape> {
        let alternative = match text {
            "JSONSchemaPropsOrArray" => SchemaAlternative::Array,
            "JSONSchemaPropsOrBool" => SchemaAlternative::Bool,
            "JSONSchemaPropsOrStringArray" => SchemaAlternative::StringArray,
            _ => return None,
        };
        Some(Shape::SchemaOr(
            alternative,
            self.resolve(source.name, "JSONSchemaProps"),
        ))
    }

    fn resolve(&self, source: &str, short: &str) -> TypeId {
        let names = self.names.iter().find(|names| names.source == source);
        match names.and_then(|names| names.get(short)) {
            Some(id) => id,
            None => broken(format_args!("{source}.{short} has no block")),
        }
    }

    fn element(&mut self, shape: Shape) -> ElementId {
        *self.element_ids.entry(shape).or_insert_with(|| {
            self.elements.push(shape);
            ElementId(self.elements.len() as u32 - 1)
        })
    }
}

impl Names {
    fn read(source: &Source, next: &mut u32) -> Self {
        let headers = lines(source).filter(|line| !line.starts_with(' '));
        let mut types: Vec<_> = headers
            .map(|line| {
                *next += 1;
                (line.split_once(' ').map_or(line, |(short, _)| short), TypeId(*next - 1))
            })
            .collect();
        types.sort_unstable();
        Names {
            source: source.name,
            types,
        }
    }

    fn get(&self, short: &str) -> Option<TypeId> {
        let at = self.types.binary_search_by(|(name, _)| (*name).cmp(short)).ok()?;
        Some(self.types[at].1)
    }
}

/// The lines that are not empty.
fn lines(source: &Source) -> impl Iterator<Item = &'static str> {
    let text: &'static str = source.text;
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).chain(std::iter::once(text.len()));
    ends.map(move |end| &text[std::mem::replace(&mut start, end + 1)..end])
        .filter(|line| !line.is_empty())
}

/// The words of a line, one by one.
struct Words(&'static str);

impl Words {
    fn take(&mut self) -> &'static str {
        let length = self.0.bytes().position(|byte| byte == b' ').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(length);
        self.0 = rest.strip_prefix(' ').unwrap_or_default();
        word
    }
}

fn field(name: &'static str, shape: Shape, pointer: bool, tag: Option<u32>, mut flags: Words) -> Field {
    let mut field = Field {
        name: Cow::Borrowed(name),
        shape,
        pointer,
        omit_empty: false,
        omit_zero: false,
        optional: false,
        required: false,
        tag,
        patch: PatchStrategy::default(),
        merge_key: None,
        list: ListType::Atomic,
        list_keys: Box::default(),
        atomic: None,
        default: None,
        inlined_by: Box::default(),
    };
    loop {
        match flags.take() {
            "" => return field,
            flag => set_flag(&mut field, flag),
        }
    }
}

fn register_kinds(schema: &mut Schema, names: &[Names]) {
    let meta = |kind: &str| names.iter().find(|names| names.source == "meta/v1")?.get(kind);
    for (source, names) in SOURCES
        .iter()
        .zip(names)
        .filter(|(source, _)| !source.version.is_empty())
    {
        let kinds = schema.kinds.entry(api_version(source)).or_default();
        for &(kind, id) in &names.types {
            if schema.types[id.0 as usize].is_kind {
                kinds.insert(Cow::Borrowed(kind), id);
            }
        }
        kinds.extend(
            EVERYWHERE
                .iter()
                .filter_map(|kind| Some((Cow::Borrowed(*kind), meta(kind)?))),
        );
    }
    let unversioned = schema.kinds.entry("v1".to_owned()).or_default();
    unversioned.extend(
        UNVERSIONED
            .iter()
            .filter_map(|kind| Some((Cow::Borrowed(*kind), meta(kind)?))),
    );
}

fn api_version(source: &Source) -> String {
    if source.group.is_empty() {
        source.version.to_owned()
    } else {
        format!("{}/{}", source.group, source.version)
    }
}

fn leaf(text: &str) -> Option<Shape> {
    Some(match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float64" => Shape::Float64,
        "bytes" => Shape::Bytes,
        "Time" => Shape::Time,
        "MicroTime" => Shape::MicroTime,
        "Duration" => Shape::Duration,
        "Quantity" => Shape::Quantity,
        "IntOrString" => Shape::IntOrString,
        "RawExtension" => Shape::Raw(RawKind::RawExtension),
        "FieldsV1" => Shape::Raw(RawKind::FieldsV1),
        "JSON" => Shape::Raw(RawKind::Json),
        _ => return None,
    })
}

fn set_flag(field: &mut Field, flag: &'static str) {
    match flag.split_once('=').unwrap_or((flag, "")) {
        ("omitempty", _) => field.omit_empty = true,
        ("omitzero", _) => field.omit_zero = true,
        ("optional", _) => field.optional = true,
        ("required", _) => field.required = true,
        ("patch", strategies) => {
            for strategy in strategies.split(',') {
                match strategy {
                    "merge" => field.patch.merge = true,
                    "retainKeys" => field.patch.retain_keys = true,
                    "replace" => field.patch.replace = true,
                    other => broken(format_args!("unknown patch strategy {other}")),
                }
            }
        }
        ("mergeKey", key) => field.merge_key = Some(Cow::Borrowed(key)),
        ("list", "atomic") => field.list = ListType::Atomic,
        ("list", "set") => field.list = ListType::Set,
        ("list", "map") => field.list = ListType::Map,
        ("keys", keys) => field.list_keys = keys.split('+').map(Cow::Borrowed).collect(),
        ("map" | "struct", atomicity) => field.atomic = Some(atomicity == "atomic"),
        ("default", text) => field.default = Some(Box::new(default_value(text))),
        ("enum", _) => {}
        _ => broken(format_args!("unknown flag {flag} on {}", field.name)),
    }
}

fn default_value(text: &str) -> Value {
    if let Some(name) = text.strip_prefix("ref(").and_then(|rest| rest.strip_suffix(')')) {
        match NAMED_DEFAULTS.iter().find(|(constant, _)| *constant == name) {
            Some((_, value)) => return Value::from(*value),
            None => broken(format_args!("the constant {name} has no known value")),
        }
    }
    match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => broken(format_args!("default {text}: {error}")),
    }
}

impl Block {
    fn new(source: &str, short: &str) -> Self {
        Block {
            name: [source, ".", short].concat().into(),
            atomic: false,
            fields: Vec::new(),
            inlines: Vec::new(),
        }
    }

    fn short_name(&self) -> &str {
        self.name.rsplit_once('.').map_or("", |(_, short)| short)
    }

    fn finish(self, inlined: Vec<Field>) -> Type {
        let is_kind = self.inlines.iter().any(|inline| inline.tag.is_none());
        let json_only = self.fields.iter().any(|field| field.tag.is_none());
        let mut fields = self.fields;
        fields.extend(inlined);
        fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut message = Vec::with_capacity(fields.len());
        for inline in &self.inlines {
            let part = MessagePart::Inline(inline.target);
            message.extend(inline.tag.map(|tag| MessageField { tag, part }));
        }
        for (position, field) in fields
            .iter()
            .enumerate()
            .filter(|(_, field)| field.inlined_by.is_empty())
        {
            let part = MessagePart::Field(position as u16);
            message.extend(field.tag.map(|tag| MessageField { tag, part }));
        }
        message.sort_unstable_by_key(|part| part.tag);
        Type::new(self.name, fields, message, self.atomic, is_kind, json_only)
    }
}

/// The fields of the structs that a struct inlines, less those it has itself.
fn inlined_fields(blocks: &[Block], index: usize) -> Vec<Field> {
    let block = &blocks[index];
    let mut fields: Vec<Field> = Vec::new();
    for inline in &block.inlines {
        let target = inline.target.0 as usize;
        let deeper = inlined_fields(blocks, target);
        for field in blocks[target].fields.iter().chain(&deeper) {
            if block.fields.iter().chain(&fields).all(|own| own.name != field.name) {
                let by =
                    std::iter::once(Box::from(blocks[target].short_name())).chain(field.inlined_by.iter().cloned());
                fields.push(Field {
                    inlined_by: by.collect(),
                    ..field.clone()
                });
            }
        }
    }
    fields
}
