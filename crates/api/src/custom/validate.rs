//! Validating objects against a schema, with upstream's messages.
//!
//! On an update a part that was invalid before and has not changed is let through, so that a schema can be tightened
//! without locking its users out of their objects.

use std::collections::HashMap;

use serde_json::{Map, json};

use super::format;
use super::structural::{Basic, Checks, Structural};
use crate::{FieldError, FieldProblem, Path, Value, repeats};

/// What is wrong with an object; `old` is its present state when this is an update.
pub fn validate(schema: &Structural, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut validator = Validator::default();
    validator.value(schema, &Path::default(), object, old);
    validator.embedded(schema, &Path::default(), object);
    validator.list_types(schema, &Path::default(), object, old);
    validator.problems
}

#[derive(Default)]
struct Validator {
    problems: Vec<FieldError>,
}

impl Validator {
    fn value(&mut self, schema: &Structural, path: &Path, value: &Value, old: Option<&Value>) {
        if old == Some(value) {
            return;
        }
        self.check_type(schema, path, value);
        if value.is_null() {
            return self.check_allowed(&schema.checks, path, value);
        }
        self.check_combinations(schema, path, value);
        match value {
            Value::String(text) => self.check_text(&schema.checks, path, text),
            Value::Number(_) => self.check_number(schema, path, value),
            Value::Array(items) => self.check_list(schema, path, items, old),
            Value::Object(map) => self.check_map(schema, path, map, old),
            _ => {}
        }
        self.check_allowed(&schema.checks, path, value);
    }

    fn check_type(&mut self, schema: &Structural, path: &Path, value: &Value) {
        let fits = match (schema.basic, value) {
            (_, Value::Null) => schema.nullable || (schema.basic.is_none() && !schema.int_or_string),
            (_, Value::String(_)) if schema.int_or_string => true,
            (_, value) if schema.int_or_string => is_integer(value),
            (None, _) => true,
            (Some(Basic::Array), value) => value.is_array(),
            (Some(Basic::Boolean), value) => value.is_boolean(),
            (Some(Basic::Integer), value) => is_integer(value),
            (Some(Basic::Number), value) => value.is_number(),
            (Some(Basic::Object), value) => value.is_object(),
            (Some(Basic::String), value) => value.is_string(),
        };
        if fits {
            return;
        }
        let wanted = match (schema.int_or_string, schema.basic) {
            (true, _) => "integer,string",
            (false, Some(basic)) => basic.as_str(),
            (false, None) => "",
        };
        match (value, schema.checks.format.as_str()) {
            // With a format, numbers are compared by that.
            (Value::Number(_), format @ ("int32" | "int64")) if schema.basic == Some(Basic::Integer) => {
                self.wrong_type(path, "float64".into(), format);
            }
            _ => self.wrong_type(path, type_name(value).into(), wanted),
        }
    }

    fn wrong_type(&mut self, path: &Path, found: Value, wanted: &str) {
        let detail = format!("{path} in body must be of type {wanted}: {}", quoted(&found));
        self.problems
            .push(FieldError::new(FieldProblem::TypeInvalid, path, found, detail));
    }

    fn invalid(&mut self, path: &Path, value: impl Into<Value>, what: &str) {
        let detail = format!("{path} in body {what}");
        self.problems.push(FieldError::invalid(path, value, detail));
    }

    fn check_text(&mut self, checks: &Checks, path: &Path, text: &str) {
        let length = text.chars().count() as i64;
        // The first of these is enough.
        if let Some(most) = checks.max_length.filter(|most| length > *most) {
            self.problems.push(match usize::try_from(most) {
                Ok(most) => FieldError::too_long(path, most),
                Err(_) => FieldError::new(FieldProblem::TooLong, path, Value::Null, "value is too long"),
            });
        } else if let Some(least) = checks.min_length.filter(|least| length < *least) {
            self.invalid(path, text, &format!("should be at least {least} chars long"));
        } else if let Some(pattern) = &checks.pattern
            && !pattern.matches(text)
        {
            self.invalid(path, text, &format!("should match '{}'", pattern.text));
        }
        if format::matches(&checks.format, text) == Some(false) {
            self.wrong_type(path, text.into(), &checks.format);
        }
    }

    fn check_number(&mut self, schema: &Structural, path: &Path, value: &Value) {
        let checks = &schema.checks;
        let number = value.as_f64().unwrap_or_default();
        let fits = match checks.format.as_str() {
            "int32" => number.fract() == 0.0 && number >= f64::from(i32::MIN) && number <= f64::from(i32::MAX),
            "int64" => value.is_i64() || number.fract() == 0.0,
            _ => true,
        };
        if schema.basic == Some(Basic::Integer) && !fits {
            let format = &checks.format;
            self.composite(format!(
                "Checked value must be of type integer with format {format} in {path}"
            ));
        }
        if let Some(of) = checks.multiple_of.filter(|of| *of > 0.0) {
            let ratio = number / of;
            if (ratio - ratio.round()).abs() > 1e-9 {
                self.invalid(path, value.clone(), &format!("should be a multiple of {of}"));
            }
        }
        if let Some(most) = checks.maximum {
            match checks.exclusive_maximum {
                true if number >= most => self.invalid(path, value.clone(), &format!("should be less than {most}")),
                false if number > most => {
                    self.invalid(path, value.clone(), &format!("should be less than or equal to {most}"));
                }
                _ => {}
            }
        }
        if let Some(least) = checks.minimum {
            match checks.exclusive_minimum {
                true if number <= least => {
                    self.invalid(path, value.clone(), &format!("should be greater than {least}"));
                }
                false if number < least => {
                    self.invalid(
                        path,
                        value.clone(),
                        &format!("should be greater than or equal to {least}"),
                    );
                }
                _ => {}
            }
        }
    }

    fn check_list(&mut self, schema: &Structural, path: &Path, items: &[Value], old: Option<&Value>) {
        let old_items = old.and_then(Value::as_array).filter(|_| schema.list_type == "map");
        let by_key: HashMap<Value, &Value> = old_items
            .into_iter()
            .flatten()
            .rev()
            .map(|item| (key_of(schema, item), item))
            .collect();
        for (index, item) in items.iter().enumerate() {
            let before = match by_key.is_empty() {
                true => None,
                false => by_key.get(&key_of(schema, item)).copied(),
            };
            if let Some(of_items) = schema.items.as_deref() {
                self.value(of_items, &path.index(index), item, before);
            }
        }
        let checks = &schema.checks;
        let count = items.len() as u64;
        if let Some(most) = checks.max_items.filter(|most| count > *most) {
            self.problems
                .push(FieldError::too_many(path, items.len(), most as usize));
        }
        if let Some(least) = checks.min_items.filter(|least| count < *least) {
            self.invalid(path, count, &format!("should have at least {least} items"));
        }
        if checks.unique_items && first_duplicate(items.iter()).is_some() {
            self.invalid(path, Value::Null, "shouldn't contain duplicates");
        }
    }

    /// Sets have no equal items, and maps no two items with the same keys.
    fn list_types(&mut self, schema: &Structural, path: &Path, value: &Value, old: Option<&Value>) {
        if old == Some(value) {
            return;
        }
        match value {
            Value::Array(items) => {
                self.check_list_type(schema, path, items);
                if let Some(below) = schema.items.as_deref() {
                    for (index, item) in items.iter().enumerate() {
                        self.list_types(below, &path.index(index), item, None);
                    }
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(below) = schema.properties.get(key).or(schema.additional_schema()) {
                        let before = old.and_then(|old| old.get(key));
                        self.list_types(below, &path.child(key), value, before);
                    }
                }
            }
            _ => {}
        }
    }

    fn check_list_type(&mut self, schema: &Structural, path: &Path, items: &[Value]) {
        let keys: Vec<Value> = match schema.list_type.as_str() {
            "set" => items.to_vec(),
            "map" => items.iter().map(|item| key_of(schema, item)).collect(),
            _ => return,
        };
        let repeated = repeats(&keys);
        for (index, key) in keys.iter().enumerate() {
            if repeated[index] {
                self.problems
                    .push(FieldError::duplicate(&path.index(index), key.clone()));
            }
        }
    }

    fn check_map(&mut self, schema: &Structural, path: &Path, map: &Map<String, Value>, old: Option<&Value>) {
        let checks = &schema.checks;
        let count = map.len() as u64;
        if let Some(most) = checks.max_properties.filter(|most| count > *most) {
            self.problems.push(FieldError::too_many(path, map.len(), most as usize));
        }
        if let Some(least) = checks.min_properties.filter(|least| count < *least) {
            self.invalid(path, count, &format!("should have at least {least} properties"));
        }
        for (key, value) in map {
            let before = old.and_then(|old| old.get(key));
            match (schema.properties.get(key), schema.additional_schema()) {
                (Some(property), _) => self.value(property, &path.child(key), value, before),
                (None, Some(additional)) => self.value(additional, &path.child(key), value, before),
                (None, None) => {}
            }
        }
        for name in checks.required.iter().filter(|name| !map.contains_key(*name)) {
            self.problems.push(FieldError::required(&path.child(name), ""));
        }
    }

    fn check_allowed(&mut self, checks: &Checks, path: &Path, value: &Value) {
        if checks.allowed.is_empty() || checks.allowed.iter().any(|allowed| same(allowed, value)) {
            return;
        }
        let allowed: Vec<String> = checks
            .allowed
            .iter()
            .map(|allowed| match allowed {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        self.problems
            .push(FieldError::not_supported(path, value.clone(), &allowed));
    }

    fn check_combinations(&mut self, schema: &Structural, path: &Path, value: &Value) {
        let checks = &schema.checks;
        let holds = |schema: &Structural| validate_at(schema, path, value).is_empty();
        let shown = format!("{:?}", path.to_string());
        if !checks.any_of.is_empty() && !checks.any_of.iter().any(holds) {
            self.composite(format!("{shown} must validate at least one schema (anyOf)"));
            self.explain_best(&checks.any_of, path, value);
        }
        if !checks.one_of.is_empty() {
            let valid = checks.one_of.iter().filter(|schema| holds(schema)).count();
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    valid => format!("Found {valid} valid alternatives"),
                };
                self.composite(format!(
                    "{shown} must validate one and only one schema (oneOf). {found}"
                ));
                if valid == 0 {
                    self.explain_best(&checks.one_of, path, value);
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for schema in &checks.all_of {
                let problems = validate_at(schema, path, value);
                valid += usize::from(problems.is_empty());
                self.problems.extend(problems);
            }
            if valid != checks.all_of.len() {
                let found = if valid == 0 { ". None validated" } else { "" };
                self.composite(format!("{shown} must validate all the schemas (allOf){found}"));
            }
        }
        if checks.not.as_deref().is_some_and(holds) {
            self.composite(format!("{shown} must not validate the schema (not)"));
        }
    }

    /// Tells what is wrong with the alternative that the value comes closest to.
    fn explain_best(&mut self, alternatives: &[Structural], path: &Path, value: &Value) {
        let problems = alternatives.iter().map(|schema| validate_at(schema, path, value));
        if let Some(fewest) = problems.min_by_key(Vec::len) {
            self.problems.extend(fewest);
        }
    }

    /// A problem that upstream reports without the place it is at.
    fn composite(&mut self, message: String) {
        let mut problem = FieldError::invalid(&Path::default(), "", message);
        problem.field = "<nil>".to_owned();
        self.problems.push(problem);
    }

    /// Objects inside of objects must say what they are.
    fn embedded(&mut self, schema: &Structural, path: &Path, value: &Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(below) = schema.properties.get(key).or(schema.additional_schema()) {
                        self.embedded_one(below, &path.child(key), value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(below) = schema.items.as_deref() {
                    for (index, value) in items.iter().enumerate() {
                        self.embedded_one(below, &path.index(index), value);
                    }
                }
            }
            _ => {}
        }
    }

    fn embedded_one(&mut self, schema: &Structural, path: &Path, value: &Value) {
        if schema.embedded_resource && value.is_object() {
            for field in ["apiVersion", "kind"] {
                if value[field].as_str().is_none_or(str::is_empty) {
                    self.problems.push(FieldError::required(&path.child(field), ""));
                }
            }
            let metadata = path.child("metadata");
            let labels = &value["metadata"]["labels"];
            self.problems
                .extend(crate::validate_labels(labels, &metadata.child("labels")));
        }
        self.embedded(schema, path, value);
    }
}

fn validate_at(schema: &Structural, path: &Path, value: &Value) -> Vec<FieldError> {
    let mut validator = Validator::default();
    validator.value(schema, path, value, None);
    validator.problems
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

/// Equality of values as JSON has it: 1 and 1.0 are the same.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn first_duplicate<'a>(items: impl Iterator<Item = &'a Value> + Clone) -> Option<&'a Value> {
    let repeated = repeats(items.clone());
    items
        .zip(repeated)
        .find(|(_, repeated)| *repeated)
        .map(|(item, _)| item)
}

/// The keys of a list item, with the defaults of keys that are not there.
fn key_of(schema: &Structural, item: &Value) -> Value {
    let mut key = json!({});
    for name in &schema.list_keys {
        let default = || {
            let items = schema.items.as_deref()?;
            items.properties.get(name)?.default.clone()
        };
        if let Some(value) = item.get(name).cloned().or_else(default) {
            key[name] = value;
        }
    }
    key
}
