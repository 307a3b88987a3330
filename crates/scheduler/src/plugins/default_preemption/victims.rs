//! Who would have to leave a node.

use std::sync::Arc;

use super::NAME;
use crate::decide;
use crate::framework::{Attempt, Rejection};
use crate::nodes::NodeId;
use crate::pod::Pod;

/// A node on which the pod fits once the victims are gone.
pub struct Candidate {
    pub node: NodeId,
    /// The most important first.
    pub victims: Vec<Arc<Pod>>,
    /// How many of them a disruption budget protects.
    pub violations: usize,
}

/// Takes all pods of lower priority off the node, then lets back the most important ones that still fit beside the
/// pod, those that a disruption budget protects first.
pub fn on(pod: &Pod, attempt: &mut Attempt<'_>, node: NodeId) -> Result<Candidate, Rejection> {
    let there = attempt.nodes.pods[node].values();
    let mut lower: Vec<Arc<Pod>> = there.filter(|other| other.priority < pod.priority).cloned().collect();
    if lower.is_empty() {
        let reason = "No preemption victims found for incoming pod";
        return Err(Rejection::unresolvable(NAME, reason));
    }
    lower.sort_by(|one, other| one.importance(other).then_with(|| one.uid().cmp(other.uid())));
    let mut trial = attempt.nodes.trial(node);
    lower.iter().for_each(|other| trial.remove(other.uid()));
    decide::fits_on(attempt.rows, pod, &mut trial, node)?;

    let violating = attempt.budgets.violated_by(&lower);
    let (protected, free): (Vec<_>, Vec<_>) = lower.iter().partition(|other| violating.contains(other.uid()));
    let mut victims: Vec<Arc<Pod>> = Vec::new();
    for other in protected.into_iter().chain(free) {
        trial.add(other.clone());
        if decide::fits_on(attempt.rows, pod, &mut trial, node).is_err() {
            trial.remove(other.uid());
            victims.push(other.clone());
        }
    }
    victims.sort_by(|one, other| one.importance(other).then_with(|| one.uid().cmp(other.uid())));
    let violations = victims.iter().filter(|victim| violating.contains(victim.uid()));
    let violations = violations.count();
    Ok(Candidate {
        node,
        victims,
        violations,
    })
}
