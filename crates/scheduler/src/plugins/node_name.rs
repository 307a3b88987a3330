//! A pod that names its node goes there or nowhere.

use async_trait::async_trait;

use crate::framework::{Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

pub struct NodeName;

#[async_trait]
impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn pre_filter(&self, pod: &Pod, _nodes: &Nodes) -> PreFilter {
        if pod.node_name.is_empty() {
            PreFilter::Skip
        } else {
            PreFilter::Check
        }
    }

    fn filter(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        if *pod.node_name == *nodes.name[node] {
            return Ok(());
        }
        let reason = "node(s) didn't match the requested node name";
        Err(Rejection::unresolvable(self.name(), reason))
    }
}
