//! Pods that need what no plugin provides yet wait and say so, rather than going to a node where they cannot run.

use async_trait::async_trait;

use crate::framework::{Plugin, PreFilter, Rejection};
use crate::nodes::Nodes;
use crate::pod::Pod;

pub struct Unsupported;

#[async_trait]
impl Plugin for Unsupported {
    fn name(&self) -> &'static str {
        "Unsupported"
    }

    fn pre_filter(&self, pod: &Pod, _nodes: &Nodes) -> PreFilter {
        match pod.unsupported {
            Some(reason) => PreFilter::Reject(Rejection::unresolvable(self.name(), reason)),
            None => PreFilter::Skip,
        }
    }
}
