//! Node selectors and node affinity.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::framework::{Normalize, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{NodeSelector, NodeSelectorTerm, Pod, Requirement};

const REASON: &str = "node(s) didn't match Pod's node affinity/selector";

pub struct NodeAffinity;

#[async_trait]
impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn pre_filter(&self, pod: &Pod, nodes: &Nodes) -> PreFilter {
        let demand = &pod.demand;
        let Some(required) = &demand.node_affinity.required else {
            let nothing = demand.node_selector.is_empty();
            return if nothing { PreFilter::Skip } else { PreFilter::Check };
        };
        // Pods of DaemonSets name their node: then no other needs to be looked at.
        let named: Option<Vec<&str>> = required.node_selector_terms.iter().map(named_node).collect();
        match named {
            Some(names) if !names.is_empty() => {
                PreFilter::Only(names.into_iter().filter_map(|name| nodes.id(name)).collect())
            }
            _ => PreFilter::Check,
        }
    }

    fn filter(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let demand = &pod.demand;
        let labels = &nodes.labels[node];
        let selected = demand
            .node_selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value));
        let required = demand.node_affinity.required.as_ref();
        let required = required.is_none_or(|required| required.matches(labels, &nodes.name[node]));
        if selected && required {
            Ok(())
        } else {
            Err(Rejection::unresolvable(self.name(), REASON))
        }
    }

    fn pre_score(&self, pod: &Pod, _nodes: &Nodes) -> bool {
        !pod.demand.node_affinity.preferred.is_empty()
    }

    fn score(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> i64 {
        let preferred = pod.demand.node_affinity.preferred.iter();
        let matching = preferred.filter(|term| {
            let preference = &term.preference;
            preference.is_empty() || preference.matches(&nodes.labels[node], &nodes.name[node])
        });
        matching.map(|term| term.weight).sum()
    }

    fn normalize(&self) -> Normalize {
        Normalize::Highest
    }
}

/// The node that a term names as the only one it can match.
fn named_node(term: &NodeSelectorTerm) -> Option<&str> {
    let named = term
        .match_fields
        .iter()
        .find(|field| field.key == "metadata.name" && field.operator == "In" && field.values.len() == 1);
    named.map(|field| field.values[0].as_str())
}

impl NodeSelector {
    pub fn matches(&self, labels: &BTreeMap<String, String>, name: &str) -> bool {
        let mut terms = self.node_selector_terms.iter();
        terms.any(|term| term.matches(labels, name))
    }
}

impl NodeSelectorTerm {
    fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    fn matches(&self, labels: &BTreeMap<String, String>, name: &str) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(name);
        !self.is_empty()
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str)))
            && self
                .match_fields
                .iter()
                .all(|requirement| requirement.matches(field(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let among = || value.is_some_and(|value| self.values.iter().any(|one| one == value));
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = || self.values.first().and_then(|text| number(text));
        match self.operator.as_str() {
            "In" => among(),
            "NotIn" => !among(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => value
                .and_then(number)
                .zip(bound())
                .is_some_and(|(value, bound)| value > bound),
            "Lt" => value
                .and_then(number)
                .zip(bound())
                .is_some_and(|(value, bound)| value < bound),
            _ => false,
        }
    }
}
