//! A pod on its way through the queue, as plugins see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::pod::Pod;

/// A pod with its history in the queue.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    pub pod: Arc<Pod>,
    pub attempts: u32,
    /// When it could first be tried.
    pub entered: Instant,
    /// Since when it has been waiting for its turn.
    pub since: Instant,
    /// The order of arrival among pods of the same time.
    pub sequence: u64,
    /// The plugins that rejected it the last time.
    pub rejected_by: BTreeSet<&'static str>,
}
