//! What a definition's schema must itself satisfy: it is structural, and says nothing the server cannot keep.

use std::collections::{HashMap, HashSet};

use regex::Regex;

use super::structural::{Basic, texts};
use super::{Structural, defaults, prune, validate};
use crate::{FieldError, FieldProblem, Fields, Path, Problems, Value, repeats};

/// What a rule may say that a value is.
const RULE_REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// What may not stand anywhere in a schema, with the reason.
const FORBIDDEN: &[(&str, &str)] = &[
    ("$ref", "$ref is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("id", "id is not supported"),
    ("patternProperties", "patternProperties is not supported"),
];

/// What may only stand where the structure is said, not in `allOf`, `anyOf`, `oneOf` and `not`.
const STRUCTURE_ONLY: &[&str] = &[
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];

/// What is wrong with `openAPIV3Schema` at `path`.
pub fn validate_definition_schema(schema: &Value, path: &Path) -> Vec<FieldError> {
    let mut problems = Problems::default();
    match schema.text("type") {
        "object" => {}
        "" => problems.required(path, "type", "must not be empty at the root"),
        other => problems.invalid(path, "type", other, "must be object at the root"),
    }
    if schema.flag("nullable") {
        problems.forbidden(path, "nullable", "nullable cannot be true at the root");
    }
    Walk {
        problems: &mut problems,
        patterns: HashMap::new(),
    }
    .schema(schema, path, SchemaPosition::Root);
    metadata_rules(schema, path, &mut problems);
    let mut problems = problems.into_vec();
    if let Err(broken) = cel::rules::Validator::compile(schema) {
        // One that is empty has been told so already.
        let is_there =
            |broken: &cel::rules::RuleError| !broken.rule.text("rule").is_empty() || !broken.rule.is_object();
        problems.extend(broken.into_iter().filter(is_there).map(|rule| rule_problem(path, rule)));
    }
    problems
}

/// The rules in CEL of `openAPIV3Schema` at `path` that may cost more than rules may.
pub fn expensive_rules(schema: &Value, path: &Path) -> Vec<FieldError> {
    let expensive = cel::rules::too_expensive(schema).into_iter();
    let errors = expensive.map(|rule| FieldError::forbidden(&rule_place(path, &rule.path), rule.detail));
    errors.collect()
}

/// A rule in CEL that does not compile.
fn rule_problem(path: &Path, broken: cel::rules::RuleError) -> FieldError {
    FieldError::invalid(&rule_place(path, &broken.path), broken.rule, broken.detail)
}

/// Where a rule stands whose own path begins at the schema.
fn rule_place(path: &Path, rule: &str) -> Path {
    let below = rule.strip_prefix("openAPIV3Schema").unwrap_or(rule);
    Path::new(&format!("{path}{below}"))
}

#[derive(Clone, Copy, PartialEq)]
enum SchemaPosition {
    Root,
    Property,
    Item,
}

struct Walk<'a> {
    problems: &'a mut Problems,
    /// Why each pattern that was seen cannot be used, if so: most stand at many places.
    patterns: HashMap<String, Option<String>>,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, path: &Path, position: SchemaPosition) {
        self.forbidden(schema, path);
        self.types(schema, path, position);
        self.lists_and_maps(schema, path);
        self.values(schema, path);
        for (name, property) in schema.entries("properties") {
            self.schema(property, &path.child("properties").key(name), SchemaPosition::Property);
        }
        if schema["items"].is_object() {
            self.schema(&schema["items"], &path.child("items"), SchemaPosition::Item);
        }
        if schema["additionalProperties"].is_object() {
            let path = path.child("additionalProperties");
            self.schema(&schema["additionalProperties"], &path, SchemaPosition::Property);
        }
        self.combinations(schema, schema, path);
        self.default(schema, path);
    }

    fn forbidden(&mut self, schema: &Value, path: &Path) {
        for (field, why) in FORBIDDEN {
            let empty = match &schema[*field] {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Object(map) => map.is_empty(),
                _ => false,
            };
            if !empty {
                self.problems.forbidden(path, field, *why);
            }
        }
        if schema.flag("uniqueItems") {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.problems.forbidden(path, "uniqueItems", why);
        }
        let both = !schema["additionalProperties"].is_null()
            && schema["additionalProperties"] != true
            && schema.entries("properties").next().is_some();
        if both {
            let why = "additionalProperties and properties are mutual exclusive";
            self.problems.forbidden(path, "additionalProperties", why);
        }
        if schema["items"].is_array() {
            let why = "items must be a schema object and not an array";
            self.problems.forbidden(path, "items", why);
        }
    }

    fn types(&mut self, schema: &Value, path: &Path, position: SchemaPosition) {
        let ty = schema.text("type");
        let int_or_string = schema.flag("x-kubernetes-int-or-string");
        let preserves = schema.flag("x-kubernetes-preserve-unknown-fields");
        if schema["x-kubernetes-preserve-unknown-fields"] == false {
            let why = "must be true or undefined";
            self.problems
                .invalid(path, "x-kubernetes-preserve-unknown-fields", false, why);
        }
        if ty.is_empty() && !int_or_string && !preserves {
            match position {
                SchemaPosition::Property => {
                    let why = "must not be empty for specified object fields";
                    self.problems.required(path, "type", why);
                }
                SchemaPosition::Item => {
                    let why = "must not be empty for specified array items";
                    self.problems.required(path, "type", why);
                }
                SchemaPosition::Root => {}
            }
        }
        if !ty.is_empty() && super::Basic::parse(ty).is_none() {
            let supported = ["array", "boolean", "integer", "number", "object", "string"];
            let problem = FieldError::not_supported(&path.child("type"), ty, &supported);
            self.problems.extend([problem]);
        }
        if ty == "array" && !schema["items"].is_object() {
            self.problems.required(path, "items", "must be specified");
        }
        if schema.flag("x-kubernetes-embedded-resource") {
            if !preserves && schema.entries("properties").next().is_none() {
                let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                           x-kubernetes-preserve-unknown-fields";
                self.problems.required(path, "properties", why);
            }
            if ty != "object" {
                let why = "must be object if x-kubernetes-embedded-resource is true";
                self.problems.invalid(path, "type", ty, why);
            }
        }
    }

    fn lists_and_maps(&mut self, schema: &Value, path: &Path) {
        let list_type = schema["x-kubernetes-list-type"].as_str();
        if list_type.is_some() && schema.text("type") != "array" {
            let why = "must be array if x-kubernetes-list-type is specified";
            self.problems.invalid(path, "type", schema.text("type"), why);
        }
        if let Some(found) = list_type
            && !["atomic", "map", "set"].contains(&found)
        {
            let supported = ["atomic", "set", "map"];
            let problem = FieldError::not_supported(&path.child("x-kubernetes-list-type"), found, &supported);
            self.problems.extend([problem]);
        }
        if list_type == Some("set") {
            self.set_items(&schema["items"], &path.child("items"));
        }
        let keys = texts(schema, "x-kubernetes-list-map-keys");
        match (list_type, keys.is_empty()) {
            (Some("map"), true) => {
                let why = "must not be empty if x-kubernetes-list-type is map";
                self.problems.required(path, "x-kubernetes-list-map-keys", why);
            }
            (Some("map"), false) => self.list_keys(schema, &keys, path),
            (_, false) => {
                let why = "must be map if x-kubernetes-list-map-keys is non-empty";
                let found = list_type.unwrap_or_default();
                self.problems.invalid(path, "x-kubernetes-list-type", found, why);
            }
            _ => {}
        }
        if let Some(found) = schema["x-kubernetes-map-type"].as_str() {
            if schema.text("type") != "object" {
                let why = "must be object if x-kubernetes-map-type is specified";
                self.problems.invalid(path, "type", schema.text("type"), why);
            }
            if !["atomic", "granular"].contains(&found) {
                let supported = ["atomic", "granular"];
                let problem = FieldError::not_supported(&path.child("x-kubernetes-map-type"), found, &supported);
                self.problems.extend([problem]);
            }
        }
    }

    /// Items of a set are compared as a whole, so none of them may be changed in part.
    fn set_items(&mut self, items: &Value, path: &Path) {
        let field = match items.text("type") {
            "object" => "x-kubernetes-map-type",
            "array" if items.has("x-kubernetes-list-type") => "x-kubernetes-list-type",
            _ => return,
        };
        if items.text(field) != "atomic" {
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            self.problems.invalid(path, field, items[field].clone(), why);
        }
    }

    fn list_keys(&mut self, schema: &Value, keys: &[String], path: &Path) {
        let items = &schema["items"];
        if items.text("type") != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            self.problems
                .invalid(&path.child("items"), "type", items.text("type"), why);
            return;
        }
        if keys.iter().any(|key| !items["properties"][key].is_object()) {
            let why = "entries must all be names of item properties";
            self.problems
                .invalid(path, "x-kubernetes-list-map-keys", keys.to_vec(), why);
        }
        let repeated = repeats(keys);
        let required: HashSet<String> = texts(items, "required").into_iter().collect();
        for (index, key) in keys.iter().enumerate() {
            let place = path.child("x-kubernetes-list-map-keys").index(index);
            if repeated[index] {
                self.problems.duplicate(&place, "", key.as_str());
            }
            let property = &items["properties"][key];
            if !property.is_object() {
                continue;
            }
            if matches!(property.text("type"), "array" | "object") {
                let place = path.child("items").child("properties").key(key);
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.problems.invalid(&place, "type", property.text("type"), why);
            }
            if !required.contains(key) && !property.has("default") {
                let place = path.child("items").child("properties").key(key);
                let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                           required property";
                self.problems.required(&place, "default", why);
            }
        }
    }

    fn values(&mut self, schema: &Value, path: &Path) {
        let pattern = schema.text("pattern");
        if !pattern.is_empty() && !self.patterns.contains_key(pattern) {
            let broken = Regex::new(pattern).err().map(|error| error.to_string());
            self.patterns.insert(pattern.to_owned(), broken);
        }
        if let Some(Some(error)) = self.patterns.get(pattern) {
            let why = format!("must be a valid regular expression, but isn't: {error}");
            self.problems.invalid(path, "pattern", pattern, why);
        }
        for (index, rule) in schema.list("x-kubernetes-validations").iter().enumerate() {
            let path = path.child("x-kubernetes-validations").index(index);
            if rule.text("rule").trim().is_empty() {
                self.problems.required(&path, "rule", "rule is not specified");
            }
            let message = rule.text("message");
            if !message.is_empty() && message.trim().is_empty() {
                self.problems
                    .invalid(&path, "message", message, "must be non-empty if specified");
            } else if message.trim().contains(['\n', '\r']) {
                self.problems
                    .invalid(&path, "message", message, "must not contain line breaks");
            }
            self.problems.optional_one_of(rule, &path, "reason", &RULE_REASONS);
        }
    }

    /// Value validation may only speak of what the structure names, and may not say structure itself.
    fn combinations(&mut self, structure: &Value, schema: &Value, path: &Path) {
        let mut nested: Vec<(Path, &Value)> = Vec::new();
        for field in ["allOf", "anyOf", "oneOf"] {
            let items = schema.list(field).iter().enumerate();
            nested.extend(items.map(|(index, item)| (path.child(field).index(index), item)));
        }
        if schema["not"].is_object() {
            nested.push((path.child("not"), &schema["not"]));
        }
        for (path, nested) in nested {
            self.nested(structure, nested, &path);
        }
    }

    fn nested(&mut self, structure: &Value, nested: &Value, path: &Path) {
        for field in STRUCTURE_ONLY {
            let allowed = *field == "type" && structure.flag("x-kubernetes-int-or-string");
            if nested.has(field) && nested[*field] != "" && nested[*field] != false && !allowed {
                self.problems.forbidden(path, field, "must be empty to be structural");
            }
        }
        for (name, property) in nested.entries("properties") {
            let place = path.child("properties").key(name);
            let known = &structure["properties"][name];
            self.nested(known, property, &place);
            if !known.is_object() && structure["additionalProperties"].is_null() {
                let why = format!("because it is defined in {place}");
                let missing = path_of_structure(path).child("properties").key(name);
                self.problems.extend([FieldError::required(&missing, why)]);
            }
        }
        if nested["items"].is_object() {
            self.nested(&structure["items"], &nested["items"], &path.child("items"));
        }
        self.combinations(structure, nested, path);
    }

    /// A default must be what the schema would make of it.
    fn default(&mut self, schema: &Value, path: &Path) {
        let Some(default) = schema.get("default") else {
            return;
        };
        let compiled = Structural::parse(schema);
        let mut pruned = default.clone();
        let mut holder = serde_json::json!({ "default": pruned.take() });
        let mut of_holder = Structural::default();
        of_holder.properties.insert("default".to_owned(), compiled.clone());
        let dropped = prune::prune(&of_holder, &mut holder);
        let place = path.child("default");
        if !dropped.is_empty() {
            let why = "must not have unknown fields";
            self.problems.invalid(path, "default", default.clone(), why);
        }
        let kind = schema.text("type");
        if !kind.is_empty() && Basic::parse(kind).is_none() {
            let found = validate::type_name(default);
            let detail = format!(" in body must be of type {kind}: {found:?}");
            let problem = FieldError::new(FieldProblem::TypeInvalid, &place, found, detail);
            self.problems.extend([problem]);
        }
        let mut completed = default.clone();
        defaults::apply(&compiled, &mut completed);
        for mut problem in validate::validate(&compiled, &completed, None) {
            problem.field = match problem.field.as_str() {
                "" => place.to_string(),
                below => place.child(below).to_string(),
            };
            self.problems.extend([problem]);
        }
    }
}

/// The schemas right below one.
pub fn below(schema: &Value) -> impl Iterator<Item = &Value> {
    let properties = schema.entries("properties").map(|(_, schema)| schema);
    let lists = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .flat_map(|list| schema.list(list));
    let single = ["items", "additionalProperties", "not"]
        .into_iter()
        .map(|field| &schema[field]);
    properties
        .chain(lists)
        .chain(single)
        .filter(|schema| schema.is_object())
}

/// The schema that a combination belongs to.
fn path_of_structure(path: &Path) -> Path {
    let text = path.to_string();
    let cut = [".allOf[", ".anyOf[", ".oneOf[", ".not"]
        .iter()
        .filter_map(|combination| text.find(combination))
        .min();
    Path::new(&text[..cut.unwrap_or(text.len())])
}

/// Only the name of an object can be restricted by its schema.
fn metadata_rules(schema: &Value, path: &Path, problems: &mut Problems) {
    let metadata = &schema["properties"]["metadata"];
    if !metadata.is_object() {
        return;
    }
    let path = path.child("properties").key("metadata");
    let only_names = metadata
        .entries("properties")
        .all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    if !only_names || !metadata["additionalProperties"].is_null() || metadata.has("default") {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        problems.extend([FieldError::new(FieldProblem::Forbidden, &path, Value::Null, why)]);
    }
}
