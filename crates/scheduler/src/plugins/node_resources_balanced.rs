//! Prefers nodes on which CPU and memory would be used up evenly.

use async_trait::async_trait;

use crate::framework::{MAX_SCORE, Plugin};
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

pub struct NodeResourcesBalancedAllocation;

#[async_trait]
impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    /// A pod that requests nothing changes no balance.
    fn pre_score(&self, pod: &Pod, _nodes: &Nodes) -> bool {
        !pod.demand.requests.is_best_effort()
    }

    fn score(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> i64 {
        let requests = &pod.demand.requests.exact;
        let cpu = used_share(
            nodes.milli_cpu[node],
            nodes.milli_cpu_requested[node] + requests.milli_cpu,
        );
        let memory = used_share(nodes.memory[node], nodes.memory_requested[node] + requests.memory);
        let deviation = ((cpu - memory) / 2.0).abs();
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    }
}

fn used_share(there: i64, used: i64) -> f64 {
    if there == 0 {
        return 0.0;
    }
    (used as f64 / there as f64).min(1.0)
}
