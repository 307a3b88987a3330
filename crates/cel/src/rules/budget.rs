//! Rules that may cost too much are refused when a definition is written, before any object meets them.

use serde_json::Value as Json;

use super::declared::Declared;
use super::{Compiled, list};

/// What one rule may cost for all values of its place in an object.
const RULE_LIMIT: u64 = 10_000_000;
/// What all rules of a schema may cost together.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// So many rules are named when all together are too expensive, of those that cost a hundredth of the limit or more.
const NAMED_RULES: usize = 4;

/// A rule, or the whole schema, that may cost too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooExpensive {
    /// Begins at the schema itself: `openAPIV3Schema.properties[spec]…`.
    pub path: String,
    pub detail: String,
}

/// The rules of a schema that may cost too much. Rules that do not compile cost nothing.
pub fn too_expensive(schema: &Json) -> Vec<TooExpensive> {
    let mut account = Account::default();
    account.place(schema, "openAPIV3Schema", true, Some(1));
    account.close()
}

#[derive(Default)]
struct Account {
    found: Vec<TooExpensive>,
    total: u64,
    /// The most expensive rules, the first most of all.
    dearest: Vec<(u64, String)>,
}

impl Account {
    /// `occurrences` is how often the place can occur in an object, where the schema limits that.
    fn place(&mut self, schema: &Json, path: &str, root: bool, occurrences: Option<u64>) {
        let below = occurrences
            .zip(multiplicity(schema))
            .map(|(one, other)| one.saturating_mul(other));
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            self.place(property, &format!("{path}.properties[{name}]"), false, below);
        }
        for field in ["items", "additionalProperties"] {
            if schema[field].is_object() {
                self.place(&schema[field], &format!("{path}.{field}"), false, below);
            }
        }
        let rules = list(schema, "x-kubernetes-validations");
        if rules.is_empty() {
            return;
        }
        let Some(declared) = Declared::read(schema, root || schema["x-kubernetes-embedded-resource"] == true) else {
            return;
        };
        let occurrences = occurrences.unwrap_or_else(|| declared.max_occurrences());
        for (index, rule) in rules.iter().enumerate() {
            let place = format!("{path}.x-kubernetes-validations[{index}]");
            if let Ok(compiled) = Compiled::new(rule, &declared) {
                let (environment, program) = (&compiled.environment, &compiled.program);
                let cost = program.max_cost(environment, &declared).saturating_mul(occurrences);
                self.charge(format!("{place}.rule"), "estimated rule cost", cost);
                if let Some(Ok(message)) = &compiled.message {
                    let cost = message.max_cost(environment, &declared);
                    let path = format!("{place}.messageExpression");
                    self.charge(path, "estimated messageExpression cost", cost);
                }
            }
        }
    }

    fn charge(&mut self, path: String, what: &str, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost > RULE_LIMIT {
            let detail = exceeds(what, cost, RULE_LIMIT);
            let path = path.clone();
            self.found.push(TooExpensive { path, detail });
        }
        if cost >= SCHEMA_LIMIT / 100 {
            self.dearest.push((cost, path));
            self.dearest.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED_RULES);
        }
    }

    fn close(mut self) -> Vec<TooExpensive> {
        if self.total <= SCHEMA_LIMIT {
            return self.found;
        }
        let contributed = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let dearest = self.dearest.into_iter().map(|(_, path)| TooExpensive {
            path,
            detail: contributed.to_owned(),
        });
        self.found.extend(dearest);
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.found.push(TooExpensive {
            path: "openAPIV3Schema".to_owned(),
            detail: exceeds(what, self.total, SCHEMA_LIMIT),
        });
        self.found
    }
}

/// How often what is below a place can occur in it; `None` where the schema sets no limit.
fn multiplicity(schema: &Json) -> Option<u64> {
    let limit = |field: &str| schema[field].as_i64().map(|limit| u64::try_from(limit).unwrap_or(0));
    match schema["type"].as_str().unwrap_or_default() {
        "object" if !schema["additionalProperties"].is_null() => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
