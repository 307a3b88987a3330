//! A custom resource's schema in memory, compiled once from its JSON form.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use regex::Regex;

use crate::{Fields, Value};

/// The types a schema can name. Absent for `x-kubernetes-int-or-string` and where anything goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basic {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

/// What a schema says of keys it does not name.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    /// Nothing: they are unknown, and pruned.
    #[default]
    Unsaid,
    /// `true` allows them and `false` forbids them; neither says what they hold.
    Allowed(bool),
    Schema(Box<Structural>),
}

/// One node of a schema: what structures objects, and what their values must satisfy.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    pub basic: Option<Basic>,
    pub properties: BTreeMap<String, Structural>,
    pub additional: Additional,
    pub items: Option<Box<Structural>>,
    pub nullable: bool,
    pub default: Option<Value>,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub int_or_string: bool,
    /// `atomic`, `set`, `map` or empty.
    pub list_type: String,
    pub list_keys: Vec<String>,
    /// `atomic`, `granular` or empty.
    pub map_type: String,
    pub checks: Checks,
}

/// What a value must satisfy beyond its structure.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    pub format: String,
    pub pattern: Option<Arc<Pattern>>,
    pub allowed: Vec<Value>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    /// One below zero lets no text pass.
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub max_items: Option<u64>,
    pub min_items: Option<u64>,
    pub unique_items: bool,
    pub max_properties: Option<u64>,
    pub min_properties: Option<u64>,
    pub required: Vec<String>,
    pub all_of: Vec<Structural>,
    pub any_of: Vec<Structural>,
    pub one_of: Vec<Structural>,
    pub not: Option<Box<Structural>>,
}

/// A regular expression that is compiled when a text is first held to it. A schema has each only once, however often it
/// is used.
#[derive(Debug)]
pub struct Pattern {
    pub text: String,
    compiled: OnceLock<Option<Regex>>,
}

/// The patterns of a schema that is being parsed, by their text.
type Patterns = HashMap<String, Arc<Pattern>>;

impl Pattern {
    /// A pattern that does not compile lets everything pass: a definition with such a one is refused before it is stored.
    pub fn matches(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| Regex::new(&self.text).ok());
        compiled.as_ref().is_none_or(|pattern| pattern.is_match(text))
    }

    fn shared(text: &str, patterns: &mut Patterns) -> Arc<Pattern> {
        if let Some(known) = patterns.get(text) {
            return known.clone();
        }
        let pattern = Arc::new(Pattern {
            text: text.to_owned(),
            compiled: OnceLock::new(),
        });
        patterns.insert(text.to_owned(), pattern.clone());
        pattern
    }
}

impl Basic {
    pub fn parse(text: &str) -> Option<Basic> {
        Some(match text {
            "array" => Basic::Array,
            "boolean" => Basic::Boolean,
            "integer" => Basic::Integer,
            "number" => Basic::Number,
            "object" => Basic::Object,
            "string" => Basic::String,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Basic::Array => "array",
            Basic::Boolean => "boolean",
            Basic::Integer => "integer",
            Basic::Number => "number",
            Basic::Object => "object",
            Basic::String => "string",
        }
    }
}

impl Structural {
    /// Compiles a schema as a definition states it.
    pub fn parse(schema: &Value) -> Structural {
        Structural::parse_with(schema, &mut Patterns::new())
    }

    fn parse_with(schema: &Value, patterns: &mut Patterns) -> Structural {
        let checks = Checks::parse(schema, patterns);
        let mut parse = |schema: &Value| Structural::parse_with(schema, patterns);
        Structural {
            basic: Basic::parse(schema.text("type")),
            properties: schema
                .entries("properties")
                .map(|(name, property)| (name.clone(), parse(property)))
                .collect(),
            additional: match &schema["additionalProperties"] {
                Value::Bool(allowed) => Additional::Allowed(*allowed),
                Value::Object(_) => Additional::Schema(Box::new(parse(&schema["additionalProperties"]))),
                _ => Additional::Unsaid,
            },
            items: schema["items"].is_object().then(|| Box::new(parse(&schema["items"]))),
            nullable: schema.flag("nullable"),
            default: schema.get("default").cloned(),
            preserve_unknown: schema.flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: schema.flag("x-kubernetes-embedded-resource"),
            int_or_string: schema.flag("x-kubernetes-int-or-string"),
            list_type: schema.text("x-kubernetes-list-type").to_owned(),
            list_keys: texts(schema, "x-kubernetes-list-map-keys"),
            map_type: schema.text("x-kubernetes-map-type").to_owned(),
            checks,
        }
    }

    /// The schema of keys that are not named, where there is one.
    pub fn additional_schema(&self) -> Option<&Structural> {
        match &self.additional {
            Additional::Schema(schema) => Some(schema),
            _ => None,
        }
    }
}

impl Checks {
    fn parse(schema: &Value, patterns: &mut Patterns) -> Checks {
        let pattern = schema.text("pattern");
        let pattern = (!pattern.is_empty()).then(|| Pattern::shared(pattern, patterns));
        let mut parse = |schema: &Value| Structural::parse_with(schema, patterns);
        let mut nested = |field: &str| schema.list(field).iter().map(&mut parse).collect::<Vec<_>>();
        Checks {
            all_of: nested("allOf"),
            any_of: nested("anyOf"),
            one_of: nested("oneOf"),
            not: schema["not"].is_object().then(|| Box::new(parse(&schema["not"]))),
            format: schema.text("format").to_owned(),
            pattern,
            allowed: schema.list("enum").to_vec(),
            maximum: schema["maximum"].as_f64(),
            exclusive_maximum: schema.flag("exclusiveMaximum"),
            minimum: schema["minimum"].as_f64(),
            exclusive_minimum: schema.flag("exclusiveMinimum"),
            multiple_of: schema["multipleOf"].as_f64(),
            max_length: schema["maxLength"].as_i64(),
            min_length: schema["minLength"].as_i64(),
            max_items: schema["maxItems"].as_u64(),
            min_items: schema["minItems"].as_u64(),
            unique_items: schema.flag("uniqueItems"),
            max_properties: schema["maxProperties"].as_u64(),
            min_properties: schema["minProperties"].as_u64(),
            required: texts(schema, "required"),
        }
    }
}

pub(super) fn texts(schema: &Value, field: &str) -> Vec<String> {
    let items = schema.list(field).iter();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
