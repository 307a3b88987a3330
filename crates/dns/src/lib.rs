//! Cluster DNS: the names of Services and pods, and a way to everybody else's.
//!
//! Start at [`run`]. `zone` knows the cluster's names and answers from caches, `forward` asks the host's own name
//! servers, `cache` keeps what they answered, `server` speaks UDP and TCP, and `wire` is the message format. [`advertise`] tells the cluster where this
//! node's server is, as endpoints of the kube-dns Service, and [`grant`] gives the server the rights for all that.
//!
//! Nothing here touches the kernel's network settings or knows how a client's packets arrive.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::kinds;
use client::{Client, Informers};
use network::Cidr;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;

use forward::Upstreams;
use server::Server;
use zone::Zone;

pub use grant::{ACCOUNT, grant};
pub use publish::{publish, withdraw};

mod cache;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod grant;
mod keepable;
mod objects;
mod publish;
mod server;
mod wire;
mod zone;

/// What a node's DNS server has to know.
#[derive(Clone)]
pub struct DnsOptions {
    pub client: Client,
    /// Where to answer, by UDP and TCP. Port 53 is not needed: the kube-dns Service leads here.
    pub listen: SocketAddr,
    /// The cluster's domain, such as `cluster.local`.
    pub domain: String,
    /// Which name servers to ask for names outside of the cluster.
    pub resolv_conf: PathBuf,
    /// The blocks whose clients are answered, besides this machine: pods and nodes. Everybody if empty.
    pub clients: Vec<Cidr>,
    /// Set to true once names are answered from caches that hold what the first list returned.
    pub ready: watch::Sender<bool>,
}

impl DnsOptions {
    pub fn new(client: Client, listen: SocketAddr) -> DnsOptions {
        DnsOptions {
            client,
            listen,
            domain: "cluster.local".to_owned(),
            resolv_conf: "/etc/resolv.conf".into(),
            clients: Vec::new(),
            ready: watch::Sender::new(false),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error("failed to listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },

    #[error("failed to serve DNS on {address}: {source}")]
    Serve { address: SocketAddr, source: io::Error },
}

/// Answers until the future is dropped. Until the caches are filled nothing is answered, so that no name is denied
/// that exists; clients ask again.
pub async fn run(options: DnsOptions) -> Result<(), DnsError> {
    let address = options.listen;
    let listen = |source| DnsError::Listen { address, source };
    let socket = Arc::new(UdpSocket::bind(address).await.map_err(listen)?);
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let informers = Informers::new(options.client.clone());
    let services = informers.cache(&kinds::service::SERVICE);
    let slices = informers.cache(&kinds::endpoint_slice::ENDPOINT_SLICE);
    let zone = Zone::new(&options.domain, services.clone(), slices.clone());
    services.synced().await;
    slices.synced().await;
    options.ready.send_replace(true);
    let upstreams = Upstreams::new(options.resolv_conf.clone(), vec![address]);
    let server = Arc::new(Server::new(zone, upstreams, options.clients));
    let source = tokio::select! {
        error = server.clone().serve_udp(socket) => error,
        never = server.serve_tcp(listener) => match never {},
    };
    Err(DnsError::Serve { address, source })
}
