//! `karve kube-proxy`: the service proxy alone, against any API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use client::{Client, Config};
use network::Cidr;
use proxy::ProxyOptions;

use super::{host_name, marks, server_address};

/// Upstream's flags of kube-proxy, as far as they are supported.
#[derive(Args, Clone, Debug)]
pub struct ProxyArgs {
    /// Kubeconfig of the API server
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Name of the node [default: the machine's hostname]
    #[arg(long)]
    hostname_override: Option<String>,
    /// CIDR range of all pods
    #[arg(long, value_delimiter = ',')]
    cluster_cidr: Vec<Cidr>,
    /// Proxy mode
    #[arg(long, default_value = "nftables", value_parser = ["nftables"])]
    proxy_mode: String,
    /// Address for /healthz and /livez; port 0 disables it
    #[arg(long, default_value = "0.0.0.0:10256")]
    healthz_bind_address: SocketAddr,
    /// Address for /metrics and /proxyMode; port 0 disables it
    #[arg(long, default_value = "127.0.0.1:10249")]
    metrics_bind_address: SocketAddr,
    /// Minimum kernel timeout of half-closed TCP connections; 0 keeps the current setting
    #[arg(long, value_parser = super::duration, default_value = "1h")]
    conntrack_tcp_timeout_close_wait: Duration,
    /// Remove all rules of the proxy and exit
    #[arg(long)]
    cleanup: bool,
}

pub async fn run(args: ProxyArgs) -> Result<()> {
    if args.cleanup {
        return Ok(proxy::remove(proxy::DEFAULT_TABLE, &[])?);
    }
    let name = args.hostname_override.clone().unwrap_or_else(host_name);
    let path = &args.kubeconfig;
    let config = Config::from_kubeconfig(path, None).with_context(|| format!("failed to load {}", path.display()))?;
    let api_servers = server_address(&config.server).into_iter().collect();
    let client = Client::connect(config)?;
    let _telling = marks::tell(&client);
    let mut options = ProxyOptions::new(client, name);
    options.cluster_cidrs = args.cluster_cidr;
    options.api_servers = api_servers;
    options.healthz_address = Some(args.healthz_bind_address).filter(|address| address.port() != 0);
    options.close_wait_timeout = args.conntrack_tcp_timeout_close_wait;
    options.metrics_address = Some(args.metrics_bind_address).filter(|address| address.port() != 0);
    Ok(proxy::run(options).await?)
}
