//! The controllers: each turns what users want into the objects that bring it about.
//!
//! Start with [`table`]: one row per controller, one file per row, in the folder of its field. A file says what the controller watches, what it
//! reads for one key, and has a pure function from that to a [`Plan`]; `driver` does everything else — queues, retries,
//! adoption, waiting for caches, status writes, events. Plans are tested as text.
//!
//! Nothing here writes but the driver. Controllers know only the API: this crate must never depend on the API server,
//! the store or a node.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access;
mod amount;
mod autoscaling;
mod certificates;
mod claim;
mod cleanup;
mod conditions;
mod driver;
mod model;
mod nodes;
mod owner;
mod plan;
mod policy;
mod resources;
mod services;
mod settings;
mod status;
mod storage;
mod table;
mod workloads;

#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use client::{Backoff, Client, EventRecorder, Informers, QueueMetrics, Transport};
use futures_util::FutureExt;
use tokio::task::JoinSet;

pub use certificates::serving_approver::APPROVER;
pub use driver::{Attempt, Reconcile, Row, Setup};
pub use plan::{Action, Plan};
pub use services::cluster_dns::DNS_PORT;
pub use settings::{
    AddressRange, AddressRangeError, AddressSource, KubeletServing, LoadBalancer, Settings, SigningAuthority,
    TokenSigner,
};
pub use storage::default_class::create_default_class;
pub use table::table;

use driver::Shared;

/// The pauses before a controller that ended by itself is started again.
const RESTART: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// What [`run`] needs.
pub struct ControllersOptions {
    /// Reads for all of them, and writes what `accounts` does not cover.
    pub client: Client,
    /// The ways by which controllers act as their own service accounts; without them all act as `client` does.
    pub accounts: Option<Accounts>,
    /// The name of this machine, for events.
    pub host: String,
    pub settings: Settings,
    /// Names of rows that are not to run.
    pub disabled: Vec<String>,
    /// Counts the work of all of them.
    pub queues: Arc<QueueMetrics>,
}

/// Gives the way to the API server as a service account of `kube-system`, by its name.
pub type Accounts = Arc<dyn Fn(&str) -> Arc<dyn Transport> + Send + Sync>;

/// Runs all controllers until the future is dropped.
pub async fn run(options: ControllersOptions) {
    let client = options.client.named("kube-controller-manager");
    let recorder = EventRecorder::start(client.clone(), "controller-manager", &options.host);
    let informers = Arc::new(Informers::new(client.clone()));
    let mut running = JoinSet::new();
    for row in table() {
        if options.disabled.iter().any(|name| name == row.name) {
            continue;
        }
        let shared = Shared {
            client: match &options.accounts {
                Some(accounts) if !row.account.is_empty() => client.through(accounts(row.account)),
                _ => client.clone(),
            },
            informers: informers.clone(),
            recorder: recorder.clone(),
            queues: options.queues.clone(),
            options: options.settings.clone(),
        };
        running.spawn(supervise(row, Arc::new(shared)));
    }
    while running.join_next().await.is_some() {}
}

/// Keeps one controller running whatever happens to it.
async fn supervise(row: &'static Row, shared: Arc<Shared>) {
    for failures in 0.. {
        let driven = std::panic::AssertUnwindSafe(driver::drive(row, shared.clone())).catch_unwind();
        if driven.await.is_err() {
            tracing::error!(controller = row.name, "a controller panicked and is started again");
        }
        tokio::time::sleep(RESTART.wait(failures)).await;
    }
}
