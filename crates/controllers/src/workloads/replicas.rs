//! Counting pods, and choosing which of too many to delete.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::selector::Selector;
use client::when::Moment;

use crate::model::{Pod, created};

/// The annotation by which a user says which pods are cheaper to lose.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub replicas: i64,
    pub fully_labeled: i64,
    pub ready: i64,
    pub available: i64,
    pub terminating: i64,
}

/// Counts the active pods; `labels` are those of the template.
pub fn count(pods: &[Arc<Pod>], labels: &Selector, min_ready_seconds: i64, now: Moment) -> Counts {
    let mut counts = Counts::default();
    for pod in pods {
        if pod.metadata.is_deleting() && !pod.is_finished() {
            counts.terminating += 1;
        }
        if !pod.is_active() {
            continue;
        }
        counts.replicas += 1;
        counts.fully_labeled += i64::from(labels.matches(&pod.metadata.labels));
        counts.ready += i64::from(pod.is_ready());
        counts.available += i64::from(pod.is_available(min_ready_seconds, now));
    }
    counts
}

/// When the next pod that is ready will have been so for long enough.
pub fn next_available(pods: &[Arc<Pod>], min_ready_seconds: i64, now: Moment) -> Option<Duration> {
    let wait = Duration::from_secs(min_ready_seconds.unsigned_abs());
    let ready = pods.iter().filter(|pod| pod.is_active() && pod.is_ready());
    ready
        .filter(|pod| !pod.is_available(min_ready_seconds, now))
        .filter_map(|pod| Some(wait.saturating_sub(now.since(pod.ready_since()?))))
        .min()
}

/// The `excess` pods that are missed least: those not placed, not running, not ready, cheap, crowded on a node, recent.
pub fn to_delete(pods: &[Arc<Pod>], related: &[Arc<Pod>], excess: usize, now: Moment) -> Vec<Arc<Pod>> {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pod.is_active()) {
        *on_node.entry(&pod.spec.node_name).or_default() += 1;
    }
    let mut pods: Vec<Arc<Pod>> = pods.to_vec();
    pods.sort_by_cached_key(|pod| {
        let neighbours = on_node.get(pod.spec.node_name.as_str()).copied().unwrap_or(0);
        let ready_since = pod.is_ready().then(|| pod.ready_since()).flatten();
        (
            !pod.spec.node_name.is_empty(),
            phase_rank(&pod.status.phase),
            pod.is_ready(),
            deletion_cost(pod),
            Reverse(neighbours),
            age_rank(ready_since, now),
            Reverse(pod.restarts()),
            age_rank(Some(created(&pod.metadata)), now),
            pod.metadata.uid.clone(),
        )
    });
    pods.truncate(excess);
    pods
}

fn phase_rank(phase: &str) -> u8 {
    match phase {
        "Pending" => 0,
        "Unknown" => 1,
        "Running" => 2,
        _ => 3,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.get(DELETION_COST);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Ages in powers of two: among pods of about the same age the choice is left to their UIDs, so that not always the
/// same zone loses its pods.
fn age_rank(since: Option<Moment>, now: Moment) -> u32 {
    let seconds = since.map_or(0, |since| now.since(since).as_secs());
    u64::BITS - seconds.leading_zeros()
}
