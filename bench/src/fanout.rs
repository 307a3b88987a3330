//! One object, many watchers: how long until the last of them has seen a change.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;

use crate::http1::{Connection, encode};
use crate::http2::{JSON, Lines, Pool};
use crate::objects::{CONFIG_MAPS, revision, stamp, stamped};
use crate::stage::{Stage, ready};
use crate::target::Target;
use crate::times::Times;

#[derive(Args)]
pub struct FanoutArgs {
    #[arg(long, default_value_t = 1000)]
    watchers: usize,
    /// Watches on one HTTP/2 connection at most
    #[arg(long, default_value_t = 100)]
    streams: usize,
    #[arg(long, default_value_t = 10)]
    changes: usize,
    /// Bytes of the object
    #[arg(long, default_value_t = 1024)]
    size: usize,
}

const NAME: &str = "shared";
/// How many watches are opened at once.
const OPENERS: usize = 50;

pub async fn run(target: &Target, args: &FanoutArgs) -> Result<()> {
    let mut connection = Connection::open(target).await?;
    let (path, kind) = (
        format!("{CONFIG_MAPS}/{NAME}?fieldManager=load&force=true"),
        "application/apply-patch+yaml",
    );
    let made = connection
        .ask(&encode("PATCH", &path, kind, &stamped(NAME, args.size, "")))
        .await?;
    let from = revision(&made)?;
    let pool = Pool::connect(target, args.watchers.div_ceil(args.streams)).await?;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    for first in (0..args.watchers).step_by(OPENERS) {
        let selector = format!("fieldSelector=metadata.name%3D{NAME}");
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}&{selector}");
        let some = (first..args.watchers.min(first + OPENERS)).map(|_| pool.watch(&path));
        for lines in try_join_all(some).await? {
            tokio::spawn(follow(lines, seen.clone()));
        }
    }
    drop(seen);
    ready()?;
    let mut times = Times::default();
    for number in 0..args.changes {
        let stamp = number.to_string();
        let body = stamped(NAME, args.size, &stamp);
        let request = encode("PUT", &format!("{CONFIG_MAPS}/{NAME}"), JSON, &body);
        let begun = Instant::now();
        connection.exchange(&request, |_| {}).await?;
        let mut missing = args.watchers;
        while missing > 0 {
            let found = arrivals.recv().await.context("the watches have ended")?;
            missing -= usize::from(found == stamp);
        }
        times.add(begun.elapsed());
    }
    let stage = Stage::default().with("operations", args.changes as f64);
    times.describe("", stage).report()
}

async fn follow(mut lines: Lines, seen: mpsc::UnboundedSender<String>) -> Result<()> {
    while let Some(line) = lines.next().await? {
        let _ = seen.send(stamp(&line).unwrap_or_default().to_owned());
    }
    Ok(())
}
