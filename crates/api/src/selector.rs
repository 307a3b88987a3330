//! Label and field selectors: parsed from a query, or from an object's `LabelSelector`, and matched.

mod parse;

use std::collections::BTreeMap;
use std::fmt;

use crate::LabelSelector;

pub use parse::{parse_fields, parse_labels};

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    Equals(String, String),
    NotEquals(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    GreaterThan(String, i64),
    LessThan(String, i64),
}

/// All requirements must hold; an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    pub requirements: Vec<Requirement>,
}

impl Selector {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(|key| labels.get(key).map(String::as_str)))
    }

    /// Matches against any source of labels.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(&label))
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    pub fn key(&self) -> &str {
        match self {
            Requirement::Equals(key, _)
            | Requirement::NotEquals(key, _)
            | Requirement::In(key, _)
            | Requirement::NotIn(key, _)
            | Requirement::Exists(key)
            | Requirement::Absent(key)
            | Requirement::GreaterThan(key, _)
            | Requirement::LessThan(key, _) => key,
        }
    }

    fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Requirement::Equals(key, value) => label(key) == Some(value),
            Requirement::NotEquals(key, value) => label(key) != Some(value),
            Requirement::In(key, values) => label(key).is_some_and(|found| values.iter().any(|value| value == found)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|found| values.iter().all(|value| value != found)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::GreaterThan(key, bound) => number(label(key)).is_some_and(|found| found > *bound),
            Requirement::LessThan(key, bound) => number(label(key)).is_some_and(|found| found < *bound),
        }
    }
}

/// A selector as one writes it in a query: `app=web,tier in (a,b),!legacy`, ordered by key.
impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Requirement> = self.requirements.iter().collect();
        sorted.sort_by_key(|requirement| requirement.key());
        for (index, requirement) in sorted.into_iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            write!(formatter, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Equals(key, value) => write!(formatter, "{key}={value}"),
            Requirement::NotEquals(key, value) => write!(formatter, "{key}!={value}"),
            Requirement::In(key, values) => write!(formatter, "{key} in ({})", sorted(values)),
            Requirement::NotIn(key, values) => write!(formatter, "{key} notin ({})", sorted(values)),
            Requirement::Exists(key) => formatter.write_str(key),
            Requirement::Absent(key) => write!(formatter, "!{key}"),
            Requirement::GreaterThan(key, bound) => write!(formatter, "{key}>{bound}"),
            Requirement::LessThan(key, bound) => write!(formatter, "{key}<{bound}"),
        }
    }
}

fn sorted(values: &[String]) -> String {
    let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
    values.sort_unstable();
    values.join(",")
}

fn number(label: Option<&str>) -> Option<i64> {
    label?.parse().ok()
}

impl From<&LabelSelector> for Selector {
    /// Operators that are not known match nothing, as the object would not have passed validation.
    fn from(selector: &LabelSelector) -> Selector {
        let equals = selector
            .match_labels
            .iter()
            .map(|(key, value)| Requirement::Equals(key.clone(), value.clone()));
        let expressions = selector.match_expressions.iter().map(|expression| {
            let key = expression.key.clone();
            let values = expression.values.clone();
            match expression.operator.as_str() {
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                _ => Requirement::In(key, values),
            }
        });
        Selector {
            requirements: equals.chain(expressions).collect(),
        }
    }
}
