//! The components under their upstream names: flags in, a running component out.

pub mod apiserver;
mod audit;
mod authentication;
mod authorization;
pub mod controllers;
pub mod embedded_store;
mod encryption;
pub mod etcd;
pub mod kubelet;
mod marks;
mod own_certificates;
pub mod proxy;
pub mod runtime;
pub mod scheduler;
mod serving;
mod trust;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use client::leader::{self, Election};
use client::{Client, Config};

use crate::stop;

/// Who of several replicas acts.
#[derive(Args, Clone, Debug)]
pub struct LeaderElectionArgs {
    /// Elect a leader, so that several instances can run; only the leader is active
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Namespace of the leader election Lease
    #[arg(long, default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

/// Runs a component while it leads, or always when there is no election, until a signal ends it.
async fn lead<C: Future<Output = ()>>(
    client: &Client,
    name: &str,
    args: &LeaderElectionArgs,
    component: impl Fn(Client) -> C,
) {
    let mut stop = stop::on_signal();
    let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
    if !args.leader_elect {
        tokio::select! {
            () = component(client.clone()) => {}
            () = stopped => {}
        }
        return;
    }
    let election = Election {
        client: client.clone(),
        namespace: args.leader_elect_resource_namespace.clone(),
        name: name.to_owned(),
        identity: format!("{}_{}", host_name(), clock::uid()),
    };
    leader::lead_until(election, stopped, component).await;
}

/// A client by kubeconfig.
pub fn connect(path: &Path) -> Result<Client> {
    let config = Config::from_kubeconfig(path, None).with_context(|| format!("failed to load {}", path.display()))?;
    Ok(Client::connect(config)?)
}

/// Where a server answers whose URL has an address; one with a name is looked up when it is asked.
pub fn server_address(url: &str) -> Option<SocketAddr> {
    let authority = url.strip_prefix("https://").unwrap_or(url).split('/').next()?;
    let host = authority.trim_start_matches('[').trim_end_matches(']');
    let with_port = authority.parse().ok();
    with_port.or_else(|| Some(SocketAddr::new(host.parse().ok()?, 443)))
}

/// The name of this machine, as the kernel has it.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_lowercase(),
    }
}

/// The authority that a configuration trusts, as PEM.
fn authority_of(config: &Config) -> Result<Option<String>> {
    match &config.certificate_authority {
        Some(source) => Ok(Some(String::from_utf8(source.read()?)?)),
        None => Ok(None),
    }
}

/// A duration as Go writes it: `2m0s`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let nanos = schema::parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| "must not be negative".to_owned())
}
