//! `karve kube-scheduler`: the scheduler alone, against any API server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use client::Client;
use scheduler::config::Configuration;
use scheduler::{Profile, SchedulerMetrics, SchedulerOptions};

use super::serving::{self, ServingArgs};
use super::{LeaderElectionArgs, connect, host_name, lead, marks};
use crate::layout::read;

const NAME: &str = "kube-scheduler";
/// Where upstream serves.
const PORT: u16 = 10259;
const EMPTY: &str = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}";

/// Upstream's flags of kube-scheduler, as far as they are supported.
#[derive(Args, Clone, Debug)]
pub struct SchedulerArgs {
    /// Kubeconfig of the API server
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// KubeSchedulerConfiguration file; takes precedence over flags
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    election: LeaderElectionArgs,
}

pub async fn run(default_kubeconfig: PathBuf, args: SchedulerArgs) -> Result<()> {
    let text = match &args.config {
        Some(path) => read(path)?,
        None => EMPTY.to_owned(),
    };
    let configuration = Configuration::parse(&text).with_context(|| match &args.config {
        Some(path) => format!("failed to load {}", path.display()),
        None => "failed to load the default configuration".to_owned(),
    })?;
    let path = configuration
        .kubeconfig
        .or(args.kubeconfig)
        .unwrap_or(default_kubeconfig);
    let client = connect(&path)?;
    let metrics: Arc<SchedulerMetrics> = Arc::default();
    let _serving = serving::serve(NAME, &args.serving, PORT, &client, metrics.clone()).await?;
    let _telling = marks::tell(&client);
    let (mut election, wanted) = (args.election, configuration.leader_election);
    election.leader_elect = wanted.leader_elect.unwrap_or(election.leader_elect);
    let namespace = wanted.resource_namespace;
    election.leader_elect_resource_namespace = namespace.unwrap_or(election.leader_elect_resource_namespace);
    let name = wanted.resource_name.unwrap_or_else(|| NAME.to_owned());
    lead(&client, &name, &election, |client| {
        scheduler::run(SchedulerOptions {
            profiles: configuration.profiles.clone(),
            ..options(client, metrics.clone())
        })
    })
    .await;
    Ok(())
}

pub fn options(client: Client, metrics: Arc<SchedulerMetrics>) -> SchedulerOptions {
    SchedulerOptions {
        client,
        profiles: vec![Profile::default()],
        host: host_name(),
        metrics,
    }
}
