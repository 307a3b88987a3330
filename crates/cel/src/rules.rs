//! `x-kubernetes-validations`: rules that stand in the schema of a custom resource.
//!
//! [`Validator::compile`] makes one from an `openAPIV3Schema`, [`Validator::validate`] asks it about an object, or about
//! a change of one. Both are pure.

mod budget;
mod declared;
mod typing;

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::{Activation, Budget, Environment, EvalError, PER_CALL_LIMIT, Program, RUNTIME_BUDGET, Type, Value};
pub use budget::{TooExpensive, too_expensive};
use declared::Declared;
pub use declared::{escape, type_of_object};
use typing::value_of;

/// The rules of one place in a schema and of everything below it.
#[derive(Debug, Default)]
pub struct Validator {
    rules: Vec<Rule>,
    schema: Json,
    properties: BTreeMap<String, Validator>,
    items: Option<Box<Validator>>,
    additional: Option<Box<Validator>>,
}

#[derive(Debug)]
struct Rule {
    text: String,
    program: Program,
    message: String,
    message_program: Option<Program>,
    reason: String,
    field_path: String,
    is_transition: bool,
    optional_old_self: bool,
}

/// A rule that an object breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// As error messages write it: `spec.items[0].name`.
    pub path: String,
    /// `FieldValueInvalid` unless the rule says otherwise.
    pub reason: String,
    /// The type that the schema gives the value, which errors show instead of the value.
    pub shown: String,
    pub detail: String,
}

/// A rule that cannot be used: where it stands in the schema, the rule, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    pub path: String,
    /// What is shown: the whole rule, or its text where another part of it is wrong.
    pub rule: Json,
    pub detail: String,
}

/// What has to be known of a place without rules of its own.
const LEADING: [&str; 3] = ["type", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"];

impl Validator {
    /// The rules in a schema; `None` when it has none, so that nothing needs to be asked.
    pub fn compile(schema: &Json) -> Result<Option<Validator>, Vec<RuleError>> {
        let mut problems = Vec::new();
        let validator = Validator::build(schema, "openAPIV3Schema", true, &mut problems);
        match problems.is_empty() {
            true => Ok(validator),
            false => Err(problems),
        }
    }

    fn build(schema: &Json, path: &str, root: bool, problems: &mut Vec<RuleError>) -> Option<Validator> {
        let mut validator = Validator::default();
        let rules = list(schema, "x-kubernetes-validations");
        let root = root || schema["x-kubernetes-embedded-resource"] == true;
        if !rules.is_empty()
            && let Some(declared) = Declared::read(schema, root)
        {
            for (index, rule) in rules.iter().enumerate() {
                let place = format!("{path}.x-kubernetes-validations[{index}]");
                match Rule::compile(rule, &declared, &place) {
                    Ok(rule) => validator.rules.push(rule),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{path}.properties[{name}]");
            if let Some(below) = Validator::build(property, &place, false, problems) {
                validator.properties.insert(name.clone(), below);
            }
        }
        let mut child = |field: &str| match &schema[field] {
            child @ Json::Object(_) => {
                Validator::build(child, &format!("{path}.{field}"), false, problems).map(Box::new)
            }
            _ => None,
        };
        validator.items = child("items");
        validator.additional = child("additionalProperties");
        let empty = validator.rules.is_empty()
            && validator.properties.is_empty()
            && validator.items.is_none()
            && validator.additional.is_none();
        if empty {
            return None;
        }
        // Most of a schema has no rules: of what only leads to some, no more is kept than how its items are told apart.
        validator.schema = match validator.rules.is_empty() {
            true => LEADING
                .iter()
                .map(|field| ((*field).to_owned(), schema[field].clone()))
                .collect(),
            false => schema.clone(),
        };
        Some(validator)
    }

    /// What an object breaks. With its state before a change, rules about the change are asked too, and rules about
    /// parts that did not change are not.
    pub fn validate(&self, value: &Json, old: Option<&Json>) -> Vec<Failure> {
        let mut check = Check {
            budget: Budget::new(RUNTIME_BUDGET, PER_CALL_LIMIT),
            failures: Vec::new(),
            exhausted: false,
        };
        check.run(self, "", value, old);
        check.failures
    }
}

struct Check {
    budget: Budget,
    failures: Vec<Failure>,
    exhausted: bool,
}

impl Check {
    fn run(&mut self, validator: &Validator, path: &str, value: &Json, old: Option<&Json>) {
        let unchanged = old == Some(value);
        if !validator.rules.is_empty() && !value.is_null() {
            let self_value = value_of(value, &validator.schema);
            let old_value = old.map(|old| value_of(old, &validator.schema));
            for rule in &validator.rules {
                if self.exhausted {
                    return;
                }
                let known_good = unchanged && !rule.is_transition;
                if !known_good {
                    self.ask(rule, validator, path, &self_value, old_value.as_ref());
                }
            }
        }
        if self.exhausted || unchanged && !validator.has_transition_rules() {
            return;
        }
        match value {
            Json::Object(fields) => {
                for (name, field) in fields {
                    let below = validator.properties.get(name).or(validator.additional.as_deref());
                    let Some(below) = below else { continue };
                    let place = match (path, validator.properties.contains_key(name)) {
                        ("", true) => name.clone(),
                        (path, true) => format!("{path}.{name}"),
                        (path, false) => format!("{path}[{name}]"),
                    };
                    self.run(below, &place, field, old.and_then(|old| old.get(name)));
                }
            }
            Json::Array(items) => {
                let Some(below) = &validator.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| counterpart(&validator.schema, old, item));
                    self.run(below, &format!("{path}[{index}]"), item, old);
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, rule: &Rule, validator: &Validator, path: &str, value: &Value, old: Option<&Value>) {
        let old_self = match (rule.is_transition, rule.optional_old_self, old) {
            (true, true, old) => Some(Value::optional(old.cloned())),
            (true, false, None) => return,
            (true, false, Some(old)) => Some(old.clone()),
            (false, ..) => None,
        };
        let variables = Variables {
            value: value.clone(),
            old_self,
        };
        let shown = validator.schema["type"].as_str().unwrap_or("object").to_owned();
        let named = match rule.message.as_str() {
            "" => rule.text.clone(),
            message => message.to_owned(),
        };
        let detail = match rule.program.evaluate(&variables, &mut self.budget) {
            Ok(value) if value.is_true() => return,
            Ok(_) => rule.explain(&variables, &mut self.budget),
            Err(EvalError::OutOfBudget) => {
                self.exhausted = true;
                EvalError::OutOfBudget.to_string()
            }
            Err(EvalError::TooExpensive) => {
                self.exhausted = true;
                format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {named}",
                    EvalError::TooExpensive
                )
            }
            Err(error) if error.to_string().starts_with("no such overload") => {
                format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {named}"
                )
            }
            Err(error) => format!("{error} evaluating rule: {named}"),
        };
        self.failures.push(Failure {
            path: joined(path, &rule.field_path),
            reason: rule.reason.clone(),
            shown,
            detail,
        });
    }
}

impl Validator {
    fn has_transition_rules(&self) -> bool {
        self.rules.iter().any(|rule| rule.is_transition)
            || self.properties.values().any(Validator::has_transition_rules)
            || self
                .items
                .iter()
                .chain(&self.additional)
                .any(|below| below.has_transition_rules())
    }
}

/// The expressions of a rule, and what they are compiled in.
struct Compiled {
    environment: Environment,
    program: Program,
    message: Option<Result<Program, String>>,
}

impl Compiled {
    fn new(rule: &Json, declared: &Declared) -> Result<Compiled, String> {
        let of = &declared.ty;
        let old = match rule["optionalOldSelf"] == true {
            true => Type::Optional(Box::new(of.clone())),
            false => of.clone(),
        };
        let environment = Environment::default().with("self", of.clone()).with("oldSelf", old);
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let compiled = |field: &str| {
            Program::compile(text(field), &environment).map_err(|error| format!("compilation failed: {error}"))
        };
        let program = compiled("rule")?;
        if !matches!(program.result_type(), Type::Bool | Type::Dyn) {
            return Err("cel expression must evaluate to a bool".to_owned());
        }
        let message = match text("messageExpression") {
            "" => None,
            _ => Some(
                compiled("messageExpression").and_then(|program| match program.result_type() {
                    Type::String | Type::Dyn => Ok(program),
                    _ => Err("messageExpression must evaluate to a string".to_owned()),
                }),
            ),
        };
        Ok(Compiled {
            environment,
            program,
            message,
        })
    }
}

impl Rule {
    fn compile(rule: &Json, declared: &Declared, path: &str) -> Result<Rule, RuleError> {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        let failed = |field: &str, detail: String| RuleError {
            path: format!("{path}.{field}"),
            rule: match field {
                "rule" => rule.clone(),
                _ => text(field).into(),
            },
            detail,
        };
        let compiled = Compiled::new(rule, declared).map_err(|error| failed("rule", error))?;
        let message_program = compiled.message.transpose();
        let message_program = message_program.map_err(|error| failed("messageExpression", error))?;
        let reason = match text("reason").as_str() {
            "" => "FieldValueInvalid".to_owned(),
            reason => reason.to_owned(),
        };
        Ok(Rule {
            is_transition: compiled.program.mentions("oldSelf"),
            text: text("rule").trim().to_owned(),
            message: text("message"),
            field_path: text("fieldPath"),
            program: compiled.program,
            message_program,
            reason,
            optional_old_self: rule["optionalOldSelf"] == true,
        })
    }

    /// Why the rule does not hold: what its expression says, what it says, or the rule itself.
    fn explain(&self, variables: &Variables, budget: &mut Budget) -> String {
        let said = self.message_program.as_ref().and_then(|program| {
            let value = program.evaluate(variables, budget).ok()?;
            let text = value.as_text()?.trim().to_owned();
            (!text.is_empty() && !text.contains('\n')).then_some(text)
        });
        said.unwrap_or_else(|| match self.message.as_str() {
            "" => format!("failed rule: {}", self.text),
            message => message.to_owned(),
        })
    }
}

struct Variables {
    value: Value,
    old_self: Option<Value>,
}

impl Activation for Variables {
    fn variable(&self, name: &str) -> Option<Value> {
        match name {
            "self" => Some(self.value.clone()),
            "oldSelf" => self.old_self.clone(),
            _ => None,
        }
    }
}

/// The item of the old list that is the same one: only lists of type `map` say which that is.
fn counterpart<'a>(schema: &Json, old: &'a Json, item: &Json) -> Option<&'a Json> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let same = |old: &&Json| {
        keys.iter()
            .filter_map(Json::as_str)
            .all(|key| old.get(key) == item.get(key))
    };
    old.as_array()?.iter().find(same)
}

fn list<'a>(value: &'a Json, field: &str) -> &'a [Json] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn joined(path: &str, field: &str) -> String {
    match (path, field) {
        (path, "") => path.to_owned(),
        ("", field) => field.trim_start_matches('.').to_owned(),
        (path, field) => format!("{path}{field}"),
    }
}

#[cfg(test)]
mod tests;
