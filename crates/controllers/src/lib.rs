//! The controllers: each turns what users want into the objects that bring it about.
//!
//! Start with [`table`]: one row per controller, one file per row. A file says what the controller watches, what it
//! reads for one key, and has a pure function from that to a [`Plan`]; `driver` does everything else — queues, retries,
//! adoption, waiting for caches, status writes, events. Plans are tested as text.
//!
//! Nothing here writes but the driver. Controllers know only the API: this crate must never depend on the API server,
//! the store or a node.

mod amount;
mod certificates;
mod claim;
mod cluster_dns;
mod cluster_role_aggregation;
mod conditions;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod driver;
mod endpoint_slice;
mod endpoint_slice_mirroring;
mod endpoints;
mod garbage_collector;
mod history;
mod job;
mod model;
mod namespace;
mod node_fit;
mod node_ipam;
mod node_lifecycle;
mod owner;
mod plan;
mod pod_gc;
mod replica_set;
mod replicas;
mod resource_quota;
mod root_ca;
mod service;
mod service_account;
mod stateful_set;
mod status;
mod table;
mod taint_eviction;
mod template;
mod token_cleaner;
mod ttl;
mod ttl_after_finished;
mod volume_binder;
mod volume_protection;

#[cfg(test)]
mod testing;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Backoff, Client, EventRecorder, Informers, QueueMetrics, Transport};
use futures_util::FutureExt;
use tokio::task::JoinSet;

pub use certificates::SigningAuthority;
pub use certificates::serving_approver::{APPROVER, KubeletServing};
pub use cluster_dns::DNS_PORT;
pub use driver::{Attempt, Reconcile, Row, Setup};
pub use plan::{Action, Plan};
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

/// What controllers take from the cluster's configuration.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The PEM bundle that pods verify the API server with; without it no `kube-root-ca.crt` is published.
    pub root_ca: Option<String>,
    /// Signs the certificates that were approved; without it somebody else does.
    pub signing: Option<SigningAuthority>,
    /// The networks of all pods, one of each address family at most (`10.244.0.0/16`); every node gets a block of each.
    /// Without them nodes get their blocks from someone else.
    pub cluster_cidrs: Vec<String>,
    /// The prefix lengths of the nodes' blocks; upstream's defaults are 24 and 64.
    pub node_cidr_mask_size_ipv4: Option<u8>,
    pub node_cidr_mask_size_ipv6: Option<u8>,
    /// Approves the serving certificates of kubelets that can show where they are; without it an administrator does, as in
    /// upstream's clusters.
    pub kubelet_serving: Option<KubeletServing>,
    /// The address of the kube-dns Service when the nodes run the built-in name server behind it. Without it the
    /// Service's endpoints are somebody else's.
    pub cluster_dns: Option<IpAddr>,
}

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
                Some(accounts) => client.through(accounts(row.account)),
                None => client.clone(),
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
