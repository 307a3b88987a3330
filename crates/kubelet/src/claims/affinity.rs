//! Which nodes a volume can be used on.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A node as selectors see it.
#[derive(Clone, Debug, Default)]
pub struct NodeLabels {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    match_expressions: Vec<Requirement>,
    match_fields: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl NodeSelectorTerm {
    /// A term without requirements matches no node.
    pub fn matches(&self, node: &NodeLabels) -> bool {
        let is_empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        let label = |key: &str| node.labels.get(key).map(String::as_str);
        let field = |key: &str| (key == "metadata.name").then_some(node.name.as_str());
        !is_empty
            && self.match_expressions.iter().all(|it| it.matches(label(&it.key)))
            && self.match_fields.iter().all(|it| it.matches(field(&it.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = || value.is_some_and(|value| self.values.iter().any(|listed| listed == value));
        let compare = |holds: fn(i64, i64) -> bool| {
            let [bound] = self.values.as_slice() else { return false };
            let numbers = value.and_then(|value| Some((value.parse().ok()?, bound.parse().ok()?)));
            numbers.is_some_and(|(value, bound)| holds(value, bound))
        };
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(|value, bound| value > bound),
            "Lt" => compare(|value, bound| value < bound),
            _ => false,
        }
    }
}
