//! Whether a pod of a template may run on a node, as far as the node itself says: its name, labels and taints.

use api::{Fields, Value};
use serde::Deserialize;

use crate::model::{Node, Toleration};

/// The answer for one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// A pod belongs there.
    pub runs: bool,
    /// A pod that is there may stay.
    pub stays: bool,
}

const NO: Fit = Fit {
    runs: false,
    stays: false,
};

/// Judges by a pod's spec with all its tolerations.
pub fn fit(spec: &Value, node: &Node) -> Fit {
    let named = spec.text("nodeName");
    if !(named.is_empty() || named == node.metadata.name) || !is_selected(spec, node) {
        return NO;
    }
    let tolerations: Vec<Toleration> = Vec::deserialize(&spec["tolerations"]).unwrap_or_default();
    let clear_of = |effects: &[&str]| {
        let mut taints = node
            .spec
            .taints
            .iter()
            .filter(|taint| effects.contains(&taint.text("effect")));
        taints.all(|taint| tolerations.iter().any(|toleration| toleration.tolerates(taint)))
    };
    Fit {
        runs: clear_of(&["NoSchedule", "NoExecute"]),
        stays: clear_of(&["NoExecute"]),
    }
}

fn is_selected(spec: &Value, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    let mut selector = spec.entries("nodeSelector");
    if !selector.all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str()) {
        return false;
    }
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required.is_null()
        || required
            .list("nodeSelectorTerms")
            .iter()
            .any(|term| matches_term(term, node))
}

/// A term without requirements matches nothing.
fn matches_term(term: &Value, node: &Node) -> bool {
    let (expressions, fields) = (term.list("matchExpressions"), term.list("matchFields"));
    let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
    let field = |key: &str| (key == "metadata.name").then_some(node.metadata.name.as_str());
    expressions.len() + fields.len() > 0
        && expressions.iter().all(|one| matches(one, label(one.text("key"))))
        && fields.iter().all(|one| matches(one, field(one.text("key"))))
}

fn matches(requirement: &Value, value: Option<&str>) -> bool {
    let values = requirement.list("values");
    let among = || value.is_some_and(|value| values.iter().any(|one| one == value));
    let compare = |holds: fn(i64, i64) -> bool| {
        let bound = values
            .first()
            .and_then(Value::as_str)
            .and_then(|text| text.parse().ok());
        let number = value.and_then(|text| text.parse().ok());
        number.zip(bound).is_some_and(|(number, bound)| holds(number, bound))
    };
    match requirement.text("operator") {
        "In" => among(),
        "NotIn" => !among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|number, bound| number > bound),
        "Lt" => compare(|number, bound| number < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, values};

    fn check(spec: &str, runs: bool, stays: bool) {
        let node = object::<Node>(
            "
metadata: {name: one, labels: {zone: a, cores: '8'}}
spec: {taints: [{key: dedicated, value: db, effect: NoSchedule}]}
",
        );
        let spec = &values(spec)[0];
        assert_eq!(fit(spec, &node), Fit { runs, stays }, "{spec}");
    }

    #[test]
    fn names_labels_and_taints_decide() {
        const TOLERANT: &str = "tolerations: [{operator: Exists}]";
        check(TOLERANT, true, true);
        check("{}", false, true);
        check("{nodeName: other, tolerations: [{operator: Exists}]}", false, false);
        check(
            "{nodeSelector: {zone: b}, tolerations: [{operator: Exists}]}",
            false,
            false,
        );
        let required = |term: &str| {
            format!(
                "{TOLERANT}\naffinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
                 {{nodeSelectorTerms: [{term}]}}}}}}"
            )
        };
        check(
            &required("{matchFields: [{key: metadata.name, operator: In, values: [one]}]}"),
            true,
            true,
        );
        check(
            &required("{matchExpressions: [{key: cores, operator: Gt, values: ['8']}]}"),
            false,
            false,
        );
        check(
            &required("{matchExpressions: [{key: zone, operator: NotIn, values: [b]}]}"),
            true,
            true,
        );
        check(&required("{}"), false, false);
    }
}
