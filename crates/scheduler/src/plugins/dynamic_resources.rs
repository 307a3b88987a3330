//! Pods that claim devices wait and say so, as claims are not allocated yet.

use std::sync::Arc;

use async_trait::async_trait;

use crate::framework::{Attempt, Plugin, PostFilter, PreFilter, Rejection};
use crate::nodes::Nodes;
use crate::pod::Pod;

pub struct DynamicResources;

#[async_trait]
impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn pre_filter(&self, pod: &Pod, _nodes: &Nodes) -> PreFilter {
        match pod.unsupported {
            Some(reason) => PreFilter::Reject(Rejection::unresolvable(self.name(), reason)),
            None => PreFilter::Skip,
        }
    }

    fn post_filter(&self, _pod: &Arc<Pod>, _attempt: &mut Attempt<'_>) -> PostFilter {
        PostFilter::Unschedulable {
            message: "no new claims to deallocate".to_owned(),
            gives_up: false,
        }
    }
}
