//! Hollow nodes: to the server they are kubelets with heartbeats and pods, but they run nothing.
//!
//! Each node has a watch of its own pods and renews its own lease, as a kubelet does, with a certificate and a connection
//! of its own, so that the server judges each by what a node may do. The cluster grows step by step; at each step pods are replaced at a steady rate for a while.

mod churn;
mod kubelet;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use futures_util::StreamExt;
use futures_util::stream;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::hollow::churn::Churn;
use crate::hollow::kubelet::Heartbeats;
use crate::http2::Pool;
use crate::objects::ensure_service_account;
use crate::stage::{Stage, ready};
use crate::target::Target;

#[derive(Args)]
pub struct HollowArgs {
    /// How many nodes there are at each step
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 5000])]
    nodes: Vec<usize>,
    #[arg(long, default_value_t = 10)]
    pods_per_node: usize,
    /// How many pods are replaced per second once a step's pods run
    #[arg(long, default_value_t = 20)]
    churn: usize,
    /// For how long
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds between the heartbeats of a node
    #[arg(long, default_value_t = 10)]
    heartbeat: u64,
}

/// How many nodes register and pods are created at once.
const AT_ONCE: usize = 64;

pub async fn run(target: &Target, args: &HollowArgs) -> Result<()> {
    allow_many_connections()?;
    ensure_service_account(target).await?;
    let requests = Pool::connect(target, 4).await?;
    let heartbeats = Arc::new(Heartbeats::default());
    let mut churn = Churn::begin(requests.clone()).await?;
    let mut nodes = 0;
    ready()?;
    for &size in &args.nodes {
        let begun = Instant::now();
        register(target, nodes..size, args, &heartbeats).await?;
        let registered = begun.elapsed();
        nodes = size;
        let begun = Instant::now();
        let pods = size * args.pods_per_node;
        let more = pods.saturating_sub(churn.count());
        churn.fill(pods, AT_ONCE).await?;
        let filled = begun.elapsed();
        let grown = Stage::default()
            .with("nodes", nodes as f64)
            .with("pods", pods as f64)
            .with("register_seconds", registered.as_secs_f64())
            .with("start_rate", more as f64 / filled.as_secs_f64());
        churn.forget();
        grown.report_running().await?;
        heartbeats.forget();
        let replaced = churn.run(args.churn, Duration::from_secs(args.seconds)).await?;
        let mut renewed = heartbeats.take();
        let stage = Stage::default()
            .with("seconds", args.seconds as f64)
            .with("replaced", replaced as f64)
            .with("heartbeats", renewed.len() as f64)
            .with("failures", heartbeats.failures() as f64);
        let stage = renewed.describe("heartbeat_", stage);
        churn.times().describe("ready_", stage).report_running().await?;
    }
    Ok(())
}

async fn register(
    target: &Target,
    numbers: std::ops::Range<usize>,
    args: &HollowArgs,
    heartbeats: &Arc<Heartbeats>,
) -> Result<()> {
    let period = Duration::from_secs(args.heartbeat);
    let mut running = stream::iter(numbers)
        .map(|number| {
            let heartbeats = heartbeats.clone();
            async move {
                let named = || format!("hollow node {number}");
                let node = kubelet::Node::connect(target, number, heartbeats)
                    .await
                    .with_context(named)?;
                let watch = node.register().await.with_context(named)?;
                tokio::spawn(node.clone().renew(period));
                tokio::spawn(node.run(watch));
                anyhow::Ok(())
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some(result) = running.next().await {
        result?;
    }
    Ok(())
}

/// Every node holds a connection, and most systems allow a thousand files to begin with.
fn allow_many_connections() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).context("cannot raise the number of open files")
}
