//! Many watches of one object each, while the objects change at a steady rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;

use crate::http1::{Connection, encode};
use crate::http2::{JSON, Lines, Pool};
use crate::objects::{CONFIG_MAPS, config_map, revision, stamp, stamped};
use crate::stage::{Stage, ready};
use crate::target::Target;
use crate::times::Times;

#[derive(Args)]
pub struct WatchesArgs {
    #[arg(long, default_value_t = 10_000)]
    watchers: usize,
    /// The HTTP/2 connections that the watches share
    #[arg(long, default_value_t = 100)]
    connections: usize,
    /// Changes per second
    #[arg(long, default_value_t = 1000)]
    rate: usize,
    #[arg(long, default_value_t = 10)]
    seconds: usize,
    /// Bytes of each object
    #[arg(long, default_value_t = 512)]
    size: usize,
}

/// How many change objects at once; each waits for the answer.
const WRITERS: usize = 32;
/// How many watches are opened at once.
const OPENERS: usize = 50;
/// How long events may take to arrive after the last change.
const GRACE: Duration = Duration::from_secs(5);

pub async fn run(target: &Target, args: &WatchesArgs) -> Result<()> {
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        writers.push(Connection::open(target).await?);
    }
    prepare(&mut writers, args).await?;
    ready()?;
    let pool = Pool::connect(target, args.connections).await?;
    let start = Arc::new(Instant::now());
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    for line in open(&pool, &mut writers[0], args.watchers).await? {
        tokio::spawn(follow(line, *start, seen.clone()));
    }
    drop(seen);
    ready()?;
    // Changes are due at fixed times, so that one that waits for a slow server counts its wait.
    let begun = start.elapsed() + Duration::from_millis(10);
    let total = args.rate * args.seconds;
    let turns = writers.iter_mut().enumerate().map(|(first, connection)| {
        let start = *start;
        async move {
            for number in (first..total).step_by(WRITERS) {
                let due = begun + Duration::from_secs_f64(number as f64 / args.rate as f64);
                tokio::time::sleep_until((start + due).into()).await;
                change(connection, number % args.watchers, args.size, due).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(turns).await?;
    let took = (start.elapsed() - begun).as_secs_f64();
    let mut times = Times::default();
    let end = tokio::time::Instant::now() + GRACE;
    while times.len() < total
        && let Ok(Some(time)) = tokio::time::timeout_at(end, arrivals.recv()).await
    {
        times.add(time);
    }
    let stage = Stage::default()
        .with("operations", total as f64)
        .with("rate", total as f64 / took)
        .with("lost", (total - times.len()) as f64);
    times.describe("", stage).report()
}

/// One object for each watcher.
async fn prepare(writers: &mut [Connection], args: &WatchesArgs) -> Result<()> {
    let turns = writers.iter_mut().enumerate().map(async |(first, connection)| {
        for number in (first..args.watchers).step_by(WRITERS) {
            let body = config_map(&name(number), args.size);
            let request = encode("POST", CONFIG_MAPS, JSON, &body);
            connection.exchange(&request, |_| {}).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(turns).await.map(drop)
}

async fn open(pool: &Pool, connection: &mut Connection, count: usize) -> Result<Vec<Lines>> {
    let list = encode("GET", &format!("{CONFIG_MAPS}?limit=1"), JSON, &[]);
    let from = revision(&connection.ask(&list).await?)?;
    let mut opened = Vec::with_capacity(count);
    for first in (0..count).step_by(OPENERS) {
        let some = (first..count.min(first + OPENERS)).map(async |number| {
            let selector = format!("fieldSelector=metadata.name%3D{}", name(number));
            let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}&{selector}");
            pool.watch(&path).await
        });
        opened.extend(try_join_all(some).await?);
    }
    Ok(opened)
}

async fn follow(mut lines: Lines, start: Instant, seen: mpsc::UnboundedSender<Duration>) -> Result<()> {
    while let Some(line) = lines.next().await? {
        let now = start.elapsed();
        let due: u64 = stamp(&line).context("an event without a stamp")?.parse()?;
        let _ = seen.send(now.saturating_sub(Duration::from_nanos(due)));
    }
    Ok(())
}

async fn change(connection: &mut Connection, number: usize, size: usize, due: Duration) -> Result<()> {
    let name = name(number);
    let body = stamped(&name, size, &due.as_nanos().to_string());
    let request = encode("PUT", &format!("{CONFIG_MAPS}/{name}"), JSON, &body);
    connection.exchange(&request, |_| {}).await
}

fn name(number: usize) -> String {
    format!("watched-{number}")
}
