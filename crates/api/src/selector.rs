//! Label and field selectors: parsed from a query, or from an object's `LabelSelector`, and matched.

use std::collections::BTreeMap;

use crate::LabelSelector;

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
