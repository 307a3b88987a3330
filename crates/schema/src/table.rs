//! The fact table and its reading.
//!
//! `facts/` holds one file per group and version, one block per struct, one line per field. The text is compiled in
//! and read once, on first use, in well under a millisecond.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::Value;
use crate::model::{
    ElementId, Field, ListType, MessageField, MessagePart, PatchStrategy, RawKind, Schema, SchemaAlternative, Shape,
    Type, TypeId,
};

/// One file of facts: how other files name it, and the API group and version it describes.
struct Source {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    text: &'static str,
}

macro_rules! source {
    ($name:literal, $group:literal, $version:literal, $file:literal) => {
        Source {
            name: $name,
            group: $group,
            version: $version,
            text: include_str!(concat!("../facts/", $file)),
        }
    };
}

#[rustfmt::skip]
const SOURCES: &[Source] = &[
    source!("admission/v1", "admission.k8s.io", "v1", "admission_v1.txt"),
    source!("admissionregistration/v1", "admissionregistration.k8s.io", "v1", "admissionregistration_v1.txt"),
    source!("apidiscovery/v2", "apidiscovery.k8s.io", "v2", "apidiscovery_v2.txt"),
    source!("apidiscovery/v2beta1", "apidiscovery.k8s.io", "v2beta1", "apidiscovery_v2beta1.txt"),
    source!("apiextensions/v1", "apiextensions.k8s.io", "v1", "apiextensions_v1.txt"),
    source!("apiregistration/v1", "apiregistration.k8s.io", "v1", "apiregistration_v1.txt"),
    source!("apps/v1", "apps", "v1", "apps_v1.txt"),
    source!("authentication/v1", "authentication.k8s.io", "v1", "authentication_v1.txt"),
    source!("authorization/v1", "authorization.k8s.io", "v1", "authorization_v1.txt"),
    source!("autoscaling/v1", "autoscaling", "v1", "autoscaling_v1.txt"),
    source!("autoscaling/v2", "autoscaling", "v2", "autoscaling_v2.txt"),
    source!("batch/v1", "batch", "v1", "batch_v1.txt"),
    source!("certificates/v1", "certificates.k8s.io", "v1", "certificates_v1.txt"),
    source!("coordination/v1", "coordination.k8s.io", "v1", "coordination_v1.txt"),
    source!("core/v1", "", "v1", "core_v1.txt"),
    source!("discovery/v1", "discovery.k8s.io", "v1", "discovery_v1.txt"),
    source!("events/v1", "events.k8s.io", "v1", "events_v1.txt"),
    source!("flowcontrol/v1", "flowcontrol.apiserver.k8s.io", "v1", "flowcontrol_v1.txt"),
    source!("meta/v1", "meta.k8s.io", "v1", "meta_v1.txt"),
    source!("metrics/v1beta1", "metrics.k8s.io", "v1beta1", "metrics_v1beta1.txt"),
    source!("networking/v1", "networking.k8s.io", "v1", "networking_v1.txt"),
    source!("node/v1", "node.k8s.io", "v1", "node_v1.txt"),
    source!("policy/v1", "policy", "v1", "policy_v1.txt"),
    source!("rbac/v1", "rbac.authorization.k8s.io", "v1", "rbac_v1.txt"),
    source!("resource/v1", "resource.k8s.io", "v1", "resource_v1.txt"),
    source!("runtime", "runtime", "", "runtime.txt"),
    source!("scheduling/v1", "scheduling.k8s.io", "v1", "scheduling_v1.txt"),
    source!("storage/v1", "storage.k8s.io", "v1", "storage_v1.txt"),
];

/// Kinds of meta/v1 that upstream registers in every group and version.
const EVERYWHERE: &[&str] = &[
    "WatchEvent",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// Kinds of meta/v1 that travel as `v1`.
const UNVERSIONED: &[&str] = &[
    "Status",
    "APIVersions",
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "List",
];

/// Structs that have no fields and so no block in the table.
const EMPTY_STRUCTS: &[&str] = &["apiextensions/v1.CustomResourceSubresourceStatus"];

/// Defaults that the table names by a constant.
const NAMED_DEFAULTS: &[(&str, &str)] = &[
    ("AzureDataDiskCachingReadWrite", "ReadWrite"),
    ("AzureSharedBlobDisk", "Shared"),
];

/// The schema of every built-in type.
pub fn builtin() -> &'static Schema {
    static BUILTIN: OnceLock<Schema> = OnceLock::new();
    BUILTIN.get_or_init(|| Builder::default().build())
}

/// A struct as its block says, before references to other structs are followed.
struct Block {
    name: String,
    atomic: bool,
    is_kind: bool,
    lines: Vec<Line>,
}

enum Line {
    Field(Field),
    Inline { target: TypeId, tag: Option<u32> },
}

#[derive(Default)]
struct Builder {
    schema: Schema,
    element_ids: HashMap<Shape, ElementId>,
}

impl Builder {
    fn build(mut self) -> Schema {
        self.name_types();
        let blocks: Vec<Block> = SOURCES.iter().flat_map(|source| self.read(source)).collect();
        let blocks = self.add_empty(blocks);
        let types = (0..blocks.len()).map(|index| finish_type(&blocks, index)).collect();
        self.schema.types = types;
        self.register_kinds();
        self.schema
    }

    fn name_types(&mut self) {
        let mut next = 0;
        for source in SOURCES {
            for line in source.text.lines().filter(|line| is_header(line)) {
                let short = line.split(' ').next().unwrap_or(line);
                self.schema
                    .names
                    .insert(format!("{}.{short}", source.name), TypeId(next));
                next += 1;
            }
        }
        for name in EMPTY_STRUCTS {
            self.schema.names.insert((*name).to_owned(), TypeId(next));
            next += 1;
        }
    }

    fn read(&mut self, source: &Source) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        for line in source.text.lines().filter(|line| !line.is_empty()) {
            if is_header(line) {
                let mut words = line.split(' ');
                let short = words.next().unwrap_or_default();
                blocks.push(Block {
                    name: format!("{}.{short}", source.name),
                    atomic: words.any(|word| word == "struct=atomic"),
                    is_kind: false,
                    lines: Vec::new(),
                });
            } else if let Some(block) = blocks.last_mut() {
                let parsed = self.line(source, line.trim_start());
                if let Line::Inline { tag: None, .. } = parsed {
                    block.is_kind = true;
                }
                block.lines.push(parsed);
            }
        }
        blocks
    }

    fn add_empty(&self, mut blocks: Vec<Block>) -> Vec<Block> {
        blocks.extend(EMPTY_STRUCTS.iter().map(|name| Block {
            name: (*name).to_owned(),
            atomic: false,
            is_kind: false,
            lines: Vec::new(),
        }));
        blocks
    }

    fn line(&mut self, source: &Source, line: &str) -> Line {
        let mut words = line.splitn(4, ' ');
        let name = words.next().unwrap_or_default();
        let type_text = words.next().unwrap_or_default();
        let tag = words.next().and_then(|text| text.parse().ok());
        let flags = words.next().unwrap_or_default();
        let (pointer, type_text) = match type_text.strip_prefix('?') {
            Some(rest) => (true, rest),
            None => (false, type_text),
        };
        let shape = self.shape(source, type_text);
        if name == "<inline>" {
            let Shape::Struct(target) = shape else {
                panic!("fact table: {type_text} cannot be inlined");
            };
            return Line::Inline { target, tag };
        }
        let mut field = Field {
            name: name.into(),
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
        flags
            .split(' ')
            .filter(|flag| !flag.is_empty())
            .for_each(|flag| set_flag(&mut field, flag));
        Line::Field(field)
    }

    fn shape(&mut self, source: &Source, text: &str) -> Shape {
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
        let local = text
            .strip_prefix("metav1.")
            .map_or(text.to_owned(), |rest| format!("meta/v1.{rest}"));
        leaf(local.strip_prefix("meta/v1.").unwrap_or(&local))
            .or_else(|| self.schema_alternative(source, text))
            .unwrap_or_else(|| Shape::Struct(self.resolve(source, &local)))
    }

    fn schema_alternative(&self, source: &Source, text: &str) -> Option<Shape> {
        let alternative = match text {
            "JSONSchemaPropsOrArray" => SchemaAlternative::Array,
            "JSONSchemaPropsOrBool" => SchemaAlternative::Bool,
            "JSONSchemaPropsOrStringArray" => SchemaAlternative::StringArray,
            _ => return None,
        };
        Some(Shape::SchemaOr(alternative, self.resolve(source, "JSONSchemaProps")))
    }

    fn resolve(&self, source: &Source, text: &str) -> TypeId {
        let full = if text.contains('.') {
            text.to_owned()
        } else {
            format!("{}.{text}", source.name)
        };
        match self.schema.names.get(&full) {
            Some(&id) => id,
            None => panic!("fact table: {} refers to {full}, which has no block", source.name),
        }
    }

    fn element(&mut self, shape: Shape) -> ElementId {
        *self.element_ids.entry(shape).or_insert_with(|| {
            self.schema.elements.push(shape);
            ElementId(self.schema.elements.len() as u32 - 1)
        })
    }

    fn register_kinds(&mut self) {
        let schema = &mut self.schema;
        for source in SOURCES.iter().filter(|source| !source.version.is_empty()) {
            let kinds = schema.kinds.entry(api_version(source)).or_default();
            let prefix = format!("{}.", source.name);
            for (index, ty) in schema.types.iter().enumerate().filter(|(_, ty)| ty.is_kind) {
                if let Some(kind) = ty.name.strip_prefix(&prefix) {
                    kinds.insert(kind.to_owned(), TypeId(index as u32));
                }
            }
            for kind in EVERYWHERE {
                kinds.insert((*kind).to_owned(), schema.names[&format!("meta/v1.{kind}")]);
            }
        }
        let unversioned = schema.kinds.entry("v1".to_owned()).or_default();
        for kind in UNVERSIONED {
            unversioned.insert((*kind).to_owned(), schema.names[&format!("meta/v1.{kind}")]);
        }
    }
}

fn api_version(source: &Source) -> String {
    if source.group.is_empty() {
        source.version.to_owned()
    } else {
        format!("{}/{}", source.group, source.version)
    }
}

fn is_header(line: &str) -> bool {
    !line.is_empty() && !line.starts_with(' ')
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

fn set_flag(field: &mut Field, flag: &str) {
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
                    other => panic!("fact table: unknown patch strategy {other}"),
                }
            }
        }
        ("mergeKey", key) => field.merge_key = Some(key.into()),
        ("list", "atomic") => field.list = ListType::Atomic,
        ("list", "set") => field.list = ListType::Set,
        ("list", "map") => field.list = ListType::Map,
        ("keys", keys) => field.list_keys = keys.split('+').map(Box::from).collect(),
        ("map" | "struct", atomicity) => field.atomic = Some(atomicity == "atomic"),
        ("default", text) => field.default = Some(default_value(text)),
        ("enum", _) => {}
        _ => panic!("fact table: unknown flag {flag} on {}", field.name),
    }
}

fn default_value(text: &str) -> Value {
    if let Some(name) = text.strip_prefix("ref(").and_then(|rest| rest.strip_suffix(')')) {
        match NAMED_DEFAULTS.iter().find(|(constant, _)| *constant == name) {
            Some((_, value)) => return Value::from(*value),
            None => panic!("fact table: the constant {name} has no known value"),
        }
    }
    match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => panic!("fact table: default {text}: {error}"),
    }
}

fn finish_type(blocks: &[Block], index: usize) -> Type {
    let block = &blocks[index];
    let mut fields = flatten(blocks, index);
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    let position = |name: &str| fields.binary_search_by(|field| (*field.name).cmp(name)).ok();
    let mut message: Vec<MessageField> = block
        .lines
        .iter()
        .filter_map(|line| match line {
            Line::Field(field) => Some(MessageField {
                tag: field.tag?,
                part: MessagePart::Field(position(&field.name)? as u16),
            }),
            Line::Inline { target, tag } => Some(MessageField {
                tag: (*tag)?,
                part: MessagePart::Inline(*target),
            }),
        })
        .collect();
    message.sort_by_key(|part| part.tag);
    let always = (0..fields.len() as u16)
        .filter(|&i| fields[i as usize].always_present())
        .collect();
    Type {
        name: block.name.as_str().into(),
        always,
        message: message.into(),
        atomic: block.atomic,
        is_kind: block.is_kind,
        json_only: block
            .lines
            .iter()
            .any(|line| matches!(line, Line::Field(field) if field.tag.is_none())),
        fields: fields.into(),
    }
}

/// The struct's own fields and those of the structs it inlines; its own win.
fn flatten(blocks: &[Block], index: usize) -> Vec<Field> {
    let lines = &blocks[index].lines;
    let mut fields: Vec<Field> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Field(field) => Some(field.clone()),
            Line::Inline { .. } => None,
        })
        .collect();
    for line in lines {
        let Line::Inline { target, .. } = line else { continue };
        let target = target.0 as usize;
        let short = blocks[target].name.rsplit('.').next().unwrap_or_default();
        for mut field in flatten(blocks, target) {
            if fields.iter().all(|own| own.name != field.name) {
                let inlined = std::iter::once(Box::from(short)).chain(field.inlined_by.iter().cloned());
                field.inlined_by = inlined.collect();
                fields.push(field);
            }
        }
    }
    fields
}
