//! The node must have what the pod requests, and the emptier it is the better.

use std::borrow::Cow;

use async_trait::async_trait;

use crate::framework::{MAX_SCORE, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

pub struct NodeResourcesFit;

#[async_trait]
impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn pre_filter(&self, _pod: &Pod, _nodes: &Nodes) -> PreFilter {
        PreFilter::Check
    }

    fn filter(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let mut shortage = Shortage::default();
        if nodes.pods[node].len() as i64 + 1 > nodes.pods_allowed[node] {
            shortage.reasons.push(Cow::Borrowed("Too many pods"));
        }
        let requests = &pod.demand.requests.exact;
        shortage.check(
            "Insufficient cpu",
            requests.milli_cpu,
            nodes.milli_cpu[node],
            nodes.milli_cpu_requested[node],
        );
        shortage.check(
            "Insufficient memory",
            requests.memory,
            nodes.memory[node],
            nodes.memory_requested[node],
        );
        shortage.check(
            "Insufficient ephemeral-storage",
            requests.ephemeral_storage,
            nodes.ephemeral_storage[node],
            nodes.ephemeral_storage_requested[node],
        );
        for (name, wanted) in &requests.others {
            let (there, requested) = nodes.others[node].get(name).copied().unwrap_or_default();
            if *wanted > there - requested {
                shortage.check(format!("Insufficient {name}"), *wanted, there, requested);
            }
        }
        if shortage.reasons.is_empty() {
            return Ok(());
        }
        Err(Rejection {
            plugin: self.name(),
            reasons: shortage.reasons,
            unresolvable: shortage.unresolvable,
        })
    }

    fn pre_score(&self, _pod: &Pod, _nodes: &Nodes) -> bool {
        true
    }

    fn score(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> i64 {
        let requests = &pod.demand.requests;
        let cpu = free_share(
            nodes.milli_cpu[node],
            nodes.milli_cpu_assumed[node] + requests.assumed_milli_cpu,
        );
        let memory = free_share(nodes.memory[node], nodes.memory_assumed[node] + requests.assumed_memory);
        (cpu + memory) / 2
    }
}

#[derive(Default)]
struct Shortage {
    reasons: Vec<Cow<'static, str>>,
    /// The node could not hold the pod even if it were empty.
    unresolvable: bool,
}

impl Shortage {
    fn check(&mut self, reason: impl Into<Cow<'static, str>>, wanted: i64, there: i64, requested: i64) {
        if wanted > 0 && wanted > there - requested {
            self.reasons.push(reason.into());
            self.unresolvable |= wanted > there;
        }
    }
}

fn free_share(there: i64, used: i64) -> i64 {
    if there == 0 || used > there {
        return 0;
    }
    (there - used) * MAX_SCORE / there
}
