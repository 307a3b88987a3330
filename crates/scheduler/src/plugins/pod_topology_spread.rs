//! Pods spread evenly over zones, hosts or other domains.

use std::collections::HashMap;

use api::selector::{Requirement, Selector};
use async_trait::async_trait;

use super::node_affinity::NodeAffinity;
use super::taint_toleration::TaintToleration;
use crate::framework::{Change, Comparison, MAX_SCORE, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{Pod, SpreadConstraint};

const NAME: &str = "PodTopologySpread";

pub struct PodTopologySpread;

/// One constraint with the pods counted in each of its domains.
struct Spread {
    topology_key: String,
    max_skew: i64,
    counts: HashMap<String, i64>,
    /// What the emptiest domain has.
    least: i64,
    /// Whether the pod itself counts where it goes.
    counts_itself: bool,
}

struct Spreads(Vec<Spread>);

#[async_trait]
impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Wherever a pod comes or goes, it may be one that matters.
    fn hint(&self, _pod: &Pod, change: &Change<'_>) -> bool {
        matches!(change, Change::Node(_) | Change::Company)
    }

    fn pre_filter(&self, pod: &Pod, nodes: &Nodes) -> PreFilter {
        let spreads = spreads(pod, nodes, "DoNotSchedule");
        if spreads.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Compare(Box::new(Spreads(spreads)))
    }

    /// The fewer pods a domain has the better; constraints with many domains weigh more, as one pod changes less there.
    fn score_all(&self, pod: &Pod, nodes: &Nodes, feasible: &[NodeId]) -> Option<Vec<i64>> {
        let spreads = spreads(pod, nodes, "ScheduleAnyway");
        if spreads.is_empty() {
            return None;
        }
        let raw = feasible.iter().map(|node| {
            let mut total = 0.0;
            for spread in &spreads {
                let value = nodes.domain(*node, &spread.topology_key)?;
                let count = spread.counts.get(value).copied().unwrap_or(0);
                let weight = ((spread.counts.len() + 2) as f64).ln();
                total += count as f64 * weight + (spread.max_skew - 1) as f64;
            }
            Some(total.round() as i64)
        });
        let raw: Vec<Option<i64>> = raw.collect();
        let known = || raw.iter().flatten().copied();
        let (lowest, highest) = (known().min()?, known().max()?);
        let scaled = |score: &Option<i64>| match score {
            // A node outside of all domains would unbalance what is counted.
            None => 0,
            Some(_) if highest == 0 => MAX_SCORE,
            Some(score) => MAX_SCORE * (highest + lowest - score) / highest,
        };
        Some(raw.iter().map(scaled).collect())
    }
}

impl Comparison for Spreads {
    fn filter(&self, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        for spread in &self.0 {
            let Some(value) = nodes.domain(node, &spread.topology_key) else {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Rejection::unresolvable(NAME, reason));
            };
            let count = spread.counts.get(value).copied().unwrap_or(0);
            if count + i64::from(spread.counts_itself) - spread.least > spread.max_skew {
                let reason = "node(s) didn't match pod topology spread constraints";
                return Err(Rejection::new(NAME, reason));
            }
        }
        Ok(())
    }
}

fn spreads(pod: &Pod, nodes: &Nodes, when: &str) -> Vec<Spread> {
    let constraints = pod.placement.iter().flat_map(|wishes| &wishes.spread);
    let constraints: Vec<&SpreadConstraint> = constraints.filter(|one| one.when_unsatisfiable == when).collect();
    if constraints.is_empty() {
        return Vec::new();
    }
    // A node counts only if it is in a domain of every constraint.
    let in_all = |node: &NodeId| {
        nodes.present[*node]
            && constraints
                .iter()
                .all(|one| nodes.domain(*node, &one.topology_key).is_some())
    };
    let eligible: Vec<NodeId> = (0..nodes.rows()).filter(in_all).collect();
    constraints
        .iter()
        .map(|one| Spread::new(one, pod, nodes, &eligible))
        .collect()
}

impl Spread {
    fn new(constraint: &SpreadConstraint, pod: &Pod, nodes: &Nodes, eligible: &[NodeId]) -> Spread {
        let selector = selector(constraint, pod);
        let mut counts: HashMap<String, i64> = HashMap::new();
        for node in eligible
            .iter()
            .filter(|node| is_counted(constraint, pod, nodes, **node))
        {
            let Some(value) = nodes.domain(*node, &constraint.topology_key) else {
                continue;
            };
            let pods = nodes.pods[*node].values().filter(|other| {
                other.metadata.namespace == pod.metadata.namespace
                    && !other.metadata.is_deleting()
                    && selector
                        .as_ref()
                        .is_some_and(|selector| selector.matches(&other.metadata.labels))
            });
            *counts.entry(value.to_owned()).or_default() += pods.count() as i64;
        }
        let too_few = constraint.min_domains.is_some_and(|least| counts.len() < least);
        let least = if too_few {
            0
        } else {
            counts.values().copied().min().unwrap_or(0)
        };
        Spread {
            topology_key: constraint.topology_key.clone(),
            max_skew: constraint.max_skew,
            counts_itself: selector.is_some_and(|selector| selector.matches(&pod.metadata.labels)),
            counts,
            least,
        }
    }
}

/// The constraint's own selector, narrowed to pods that share the named labels with this one.
fn selector(constraint: &SpreadConstraint, pod: &Pod) -> Option<Selector> {
    let mut selector = Selector::from(constraint.label_selector.as_ref()?);
    let shared = constraint.match_label_keys.iter();
    let shared = shared.filter_map(|key| Some((key.clone(), pod.metadata.labels.get(key)?.clone())));
    selector
        .requirements
        .extend(shared.map(|(key, value)| Requirement::Equals(key, value)));
    Some(selector)
}

fn is_counted(constraint: &SpreadConstraint, pod: &Pod, nodes: &Nodes, node: NodeId) -> bool {
    let affine = constraint.node_affinity_policy == "Ignore" || NodeAffinity.filter(pod, nodes, node).is_ok();
    let tolerable = constraint.node_taints_policy != "Honor" || TaintToleration.filter(pod, nodes, node).is_ok();
    affine && tolerable
}
