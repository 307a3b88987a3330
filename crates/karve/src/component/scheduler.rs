//! `karve kube-scheduler`: the scheduler alone, against any API server.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use client::Client;
use scheduler::SchedulerOptions;

use super::{LeaderElectionArgs, connect, host_name, lead, marks};

/// Upstream's flags of kube-scheduler, as far as they are supported.
#[derive(Args, Clone, Debug)]
pub struct SchedulerArgs {
    /// How to reach the API server
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    election: LeaderElectionArgs,
}

pub async fn run(default_kubeconfig: PathBuf, args: SchedulerArgs) -> Result<()> {
    let path = args.kubeconfig.unwrap_or(default_kubeconfig);
    let client = connect(&path)?;
    let _telling = marks::tell(&client);
    lead(&client, "kube-scheduler", &args.election, |client| {
        scheduler::run(options(client))
    })
    .await;
    Ok(())
}

pub fn options(client: Client) -> SchedulerOptions {
    SchedulerOptions {
        client,
        scheduler_name: "default-scheduler".to_owned(),
        host: host_name(),
    }
}
