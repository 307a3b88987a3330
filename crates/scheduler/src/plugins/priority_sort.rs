//! Pods of a higher priority go first; among equals, those that have waited longer.

use std::cmp::Ordering;

use async_trait::async_trait;

use crate::framework::Plugin;
use crate::queued_pod::QueuedPod;

pub struct PrioritySort;

#[async_trait]
impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn queue_sort(&self, one: &QueuedPod, other: &QueuedPod) -> Option<Ordering> {
        let priority = other.pod.priority.cmp(&one.pod.priority);
        Some(priority.then_with(|| (one.since, one.sequence).cmp(&(other.since, other.sequence))))
    }
}
