//! Makes room for a pod by removing pods of lower priority.

mod victims;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::framework::{Attempt, Plugin, PostFilter, Preemption};
use crate::nodes::NodeId;
use crate::pod::Pod;
use victims::Candidate;

pub const NAME: &str = "DefaultPreemption";
/// Among this share of the nodes, and at least so many, the best is searched; upstream's defaults.
const MIN_CANDIDATES_PERCENT: usize = 10;
const MIN_CANDIDATES: usize = 100;
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const TERMINATING: &str = "not eligible due to a terminating pod on the nominated node.";

pub struct DefaultPreemption;

#[async_trait]
impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn post_filter(&self, pod: &Arc<Pod>, attempt: &mut Attempt<'_>) -> PostFilter {
        if let Some(reason) = not_eligible(pod, attempt) {
            let message = format!("preemption: {reason}");
            return PostFilter::Unschedulable {
                message,
                gives_up: false,
            };
        }
        let (candidates, reasons) = candidates(pod, attempt);
        match candidates.into_iter().min_by_key(preference) {
            Some(best) => PostFilter::Nominate(Preemption {
                node: attempt.nodes.name[best.node].to_string(),
                victims: best.victims,
            }),
            None => {
                let message = format!("preemption: {}", in_vain(attempt, reasons));
                PostFilter::Unschedulable {
                    message,
                    gives_up: true,
                }
            }
        }
    }
}

/// Why the pod may not displace others now.
fn not_eligible(pod: &Pod, attempt: &Attempt<'_>) -> Option<&'static str> {
    if pod.preemption_policy == "Never" {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // Where others are leaving for it already, it waits for them instead of asking more to go.
    let nodes = &attempt.nodes;
    let nominated = nodes.nominations.node_of(pod.uid()).and_then(|name| nodes.id(name))?;
    if !attempt.failure.resolvable.contains(&nominated) {
        return None;
    }
    let leaving = nodes.pods[nominated].values().any(|other| {
        let chosen = nodes.nominations.has_victim(pod.uid(), other.uid());
        other.priority < pod.priority && (other.is_preempted || chosen)
    });
    leaving.then_some(TERMINATING)
}

/// Nodes on which the pod would fit without some others, and why it would not on the rest.
fn candidates(pod: &Arc<Pod>, attempt: &mut Attempt<'_>) -> (Vec<Candidate>, BTreeMap<String, usize>) {
    let nodes: Vec<NodeId> = attempt.failure.resolvable.clone();
    let wanted = (nodes.len() * MIN_CANDIDATES_PERCENT / 100).max(MIN_CANDIDATES);
    // Starting anywhere keeps preemptions from gathering on the first nodes of a large cluster.
    let start = match nodes.len() {
        0 => 0,
        many => attempt.dice.roll(many as u64) as usize,
    };
    let mut reasons = BTreeMap::new();
    let mut found: Vec<Candidate> = Vec::new();
    for node in nodes.iter().cycle().skip(start).take(nodes.len()) {
        match victims::on(pod, attempt, *node) {
            Ok(candidate) => found.push(candidate),
            Err(rejection) => {
                let counted = rejection.reasons.into_iter();
                counted.for_each(|reason| *reasons.entry(reason.into_owned()).or_default() += 1);
            }
        }
        if found.len() >= wanted && found.iter().any(|candidate| candidate.violations == 0) {
            break;
        }
    }
    found.sort_by_key(|candidate| candidate.node);
    (found, reasons)
}

/// What makes one candidate better than another, the most important first: fewer overdrawn budgets, a lower highest
/// priority, a lower sum of priorities, fewer victims, and a later start of those with the highest priority.
fn preference(candidate: &Candidate) -> impl Ord + use<> {
    // Shifted above zero, so that many unimportant pods are not less than few.
    let shifted = |pod: &Arc<Pod>| i64::from(pod.priority) - i64::from(i32::MIN);
    let victims = &candidate.victims;
    let highest = victims.iter().map(|victim| victim.priority).max();
    let important = victims.iter().filter(|victim| Some(victim.priority) == highest);
    let earliest = important.map(|victim| (victim.started.is_none(), victim.started)).min();
    let sum: i64 = victims.iter().map(shifted).sum();
    (candidate.violations, highest, sum, victims.len(), Reverse(earliest))
}

fn in_vain(attempt: &Attempt<'_>, mut reasons: BTreeMap<String, usize>) -> String {
    if attempt.failure.unresolvable > 0 {
        *reasons.entry(NOT_HELPFUL.to_owned()).or_default() += attempt.failure.unresolvable;
    }
    let mut texts: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    texts.sort();
    format!("0/{} nodes are available: {}.", attempt.failure.nodes, texts.join(", "))
}
