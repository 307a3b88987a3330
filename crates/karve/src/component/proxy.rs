//! `karve kube-proxy`: the service proxy alone, against any API server.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use client::{Client, Config};
use network::Cidr;
use proxy::ProxyOptions;

use super::{host_name, marks, server_address};

/// Upstream's flags of kube-proxy, as far as they are supported.
#[derive(Args, Clone, Debug)]
pub struct ProxyArgs {
    /// How to reach the API server
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The node's name [default: the machine's]
    #[arg(long)]
    hostname_override: Option<String>,
    /// The addresses of all pods
    #[arg(long, value_delimiter = ',')]
    cluster_cidr: Vec<Cidr>,
    /// How rules are made
    #[arg(long, default_value = "nftables", value_parser = ["nftables"])]
    proxy_mode: String,
    /// Where /healthz and /livez are answered; port 0 for nowhere
    #[arg(long, default_value = "0.0.0.0:10256")]
    healthz_bind_address: SocketAddr,
    /// Remove the rules and exit
    #[arg(long)]
    cleanup: bool,
}

pub async fn run(args: ProxyArgs) -> Result<()> {
    if args.cleanup {
        return Ok(proxy::remove(proxy::DEFAULT_TABLE, &[])?);
    }
    let name = args.hostname_override.clone().unwrap_or_else(host_name);
    let path = &args.kubeconfig;
    let config = Config::from_kubeconfig(path, None).with_context(|| format!("cannot use {}", path.display()))?;
    let api_servers = server_address(&config.server).into_iter().collect();
    let client = Client::connect(config)?;
    let _telling = marks::tell(&client);
    let mut options = ProxyOptions::new(client, name);
    options.cluster_cidrs = args.cluster_cidr;
    options.api_servers = api_servers;
    options.healthz_address = Some(args.healthz_bind_address).filter(|address| address.port() != 0);
    Ok(proxy::run(options).await?)
}
