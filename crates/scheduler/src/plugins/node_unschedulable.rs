//! Cordoned nodes take only pods that tolerate it.

use async_trait::async_trait;

use crate::framework::{Plugin, PreFilter, Rejection};
use crate::node::Taint;
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

pub struct NodeUnschedulable;

#[async_trait]
impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn pre_filter(&self, _pod: &Pod, _nodes: &Nodes) -> PreFilter {
        PreFilter::Check
    }

    fn filter(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        if !nodes.unschedulable[node] {
            return Ok(());
        }
        let cordon = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if cordon.is_tolerated(&pod.demand.tolerations) {
            return Ok(());
        }
        Err(Rejection::unresolvable(self.name(), "node(s) were unschedulable"))
    }
}
