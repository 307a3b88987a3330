//! Identical pods on many nodes, from the first request until the last pod is bound.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use futures_util::future::{join, try_join_all};

use crate::http1::{Connection, encode};
use crate::http2::{JSON, Pool};
use crate::objects::{NODES, PODS, ensure_service_account, node, now_in_seconds, pod, revision};
use crate::pod_watch::PodWatch;
use crate::stage::{Stage, ready};
use crate::target::Target;

#[derive(Args)]
pub struct ScheduleArgs {
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// How many create at once, each on a connection of its own
    #[arg(long, default_value_t = 64)]
    clients: usize,
}

/// A scheduler that binds nothing for so long has stopped.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(target: &Target, args: &ScheduleArgs) -> Result<()> {
    ensure_service_account(target).await?;
    let mut clients = Vec::new();
    for _ in 0..args.clients {
        clients.push(Connection::open(target).await?);
    }
    let now = now_in_seconds();
    create(&mut clients, NODES, args.nodes, |number| {
        node(&format!("node-{number}"), &now)
    })
    .await?;
    let list = clients[0]
        .ask(&encode("GET", &format!("{PODS}?limit=1"), JSON, &[]))
        .await?;
    let pool = Pool::connect(target, 1).await?;
    let from = revision(&list)?;
    let mut watch = PodWatch::open(pool, &format!("{PODS}?"), from).await?;
    ready()?;
    let begun = Instant::now();
    let creating = async {
        let made = create(&mut clients, PODS, args.pods, |number| pod(&format!("pod-{number}"))).await;
        made.map(|()| begun.elapsed())
    };
    let (created, bound) = join(creating, all_bound(&mut watch, args.pods, begun)).await;
    let (created, (bound, nodes)) = (created?, bound?);
    Stage::default()
        .with("operations", args.pods as f64)
        .with("rate", args.pods as f64 / bound.as_secs_f64())
        .with("seconds", bound.as_secs_f64())
        .with("created_seconds", created.as_secs_f64())
        .with("nodes_used", nodes as f64)
        .report()
}

async fn create(clients: &mut [Connection], path: &str, count: usize, body: impl Fn(usize) -> Vec<u8>) -> Result<()> {
    let (step, body) = (clients.len(), &body);
    let turns = clients.iter_mut().enumerate().map(async |(first, connection)| {
        for number in (first..count).step_by(step) {
            let request = encode("POST", path, JSON, &body(number));
            connection.exchange(&request, |_| {}).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(turns).await.map(drop)
}

/// The time until so many pods have a node, and how many different ones.
async fn all_bound(watch: &mut PodWatch, count: usize, begun: Instant) -> Result<(Duration, usize)> {
    let (mut bound, mut nodes) = (HashSet::new(), HashSet::new());
    while bound.len() < count {
        let event = tokio::time::timeout(PATIENCE, watch.next())
            .await
            .with_context(|| format!("{} of {count} pods were bound, then none", bound.len()))??;
        if !event.object.spec.node_name.is_empty() {
            nodes.insert(event.object.spec.node_name);
            bound.insert(event.object.metadata.name);
        }
    }
    Ok((begun.elapsed(), nodes.len()))
}
