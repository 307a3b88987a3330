//! The load generator of `cargo xtask bench`: many clients in one thread, for it has one core of its own.
//!
//! Each file beside this one is one load. All of them speak the protocol of [`stage`] with whoever started them.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod endpoints;
mod fanout;
mod hollow;
mod http1;
mod http2;
mod identity;
mod list;
mod objects;
mod pod_watch;
mod requests;
mod schedule;
mod stage;
mod target;
mod times;
mod watches;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::target::{Target, TargetArgs};

/// Loads an API server and prints what it saw, one JSON object a stage; a line on standard input lets it go on.
#[derive(Parser)]
#[command(name = "load", max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    target: TargetArgs,
    #[command(subcommand)]
    load: Load,
}

#[derive(Subcommand)]
enum Load {
    /// Create ConfigMaps
    Create(requests::CreateArgs),
    /// Read one ConfigMap again and again
    Get(requests::GetArgs),
    /// List all ConfigMaps
    List(list::ListArgs),
    /// Watch a ConfigMap by each watcher while they are changed at a steady rate
    Watches(watches::WatchesArgs),
    /// Watch one ConfigMap by all watchers, and wait after each change until the last has seen it
    Fanout(fanout::FanoutArgs),
    /// Register nodes, create pods and wait until all are bound
    Schedule(schedule::ScheduleArgs),
    /// Be the kubelets of many nodes
    Hollow(hollow::HollowArgs),
    /// Change an endpoint among many Services and wait until connections reach the new one
    Endpoints(endpoints::EndpointsArgs),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let target = Target::new(&arguments.target)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.load {
            Load::Create(args) => requests::create(&target, &args).await,
            Load::Get(args) => requests::get(&target, &args).await,
            Load::List(args) => list::run(&target, &args).await,
            Load::Watches(args) => watches::run(&target, &args).await,
            Load::Fanout(args) => fanout::run(&target, &args).await,
            Load::Schedule(args) => schedule::run(&target, &args).await,
            Load::Hollow(args) => hollow::run(&target, &args).await,
            Load::Endpoints(args) => endpoints::run(&target, &args).await,
        }
    })
}
