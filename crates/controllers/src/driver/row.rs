//! A row of the controllers' table, and what a controller is given.

use std::sync::Arc;

use async_trait::async_trait;
use client::when::Moment;
use client::{Client, EventRecorder, Informers, Key, QueueMetrics};

use super::setup::Setup;
use crate::plan::Plan;
use crate::settings::Settings;

/// One controller: a row of the table.
pub struct Row {
    pub name: &'static str,
    /// The service account of `kube-system` that it acts as; upstream's, whose rights every cluster's default roles hold.
    /// Empty where it acts as the controller manager itself.
    pub account: &'static str,
    /// What its queue is called in metrics: as upstream's, where it has one.
    pub queue: &'static str,
    /// How many keys are worked on at a time.
    pub workers: usize,
    /// Says what is watched, and makes the planner.
    pub start: fn(&mut Setup<'_>) -> Box<dyn Reconcile>,
}

/// Plans for one key. Reads caches, and where they cannot tell, the API; never writes.
#[async_trait]
pub trait Reconcile: Send + Sync + 'static {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan>;
}

/// The circumstances of a plan.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    pub now: Moment,
    /// How many times in a row carrying out this key's plans has failed.
    pub failures: u32,
    /// Why it failed the last time.
    pub error: Option<String>,
}

/// What a controller gets from [`crate::run`]; all but the client is shared by all of them.
pub struct Shared {
    /// Acts as the controller.
    pub client: Client,
    pub informers: Arc<Informers>,
    pub recorder: EventRecorder,
    pub queues: Arc<QueueMetrics>,
    pub options: Settings,
}
