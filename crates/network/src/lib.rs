//! The pod network: gives a sandbox's network namespace an interface, addresses and routes, and takes them back.
//!
//! Start at [`PodNetwork`], the one interface the runtime uses. It has two implementations: [`bridge`], which is built
//! in, and [`cni`], which calls the plugins an administrator configured. [`host_gateway`] leads to the pods of other
//! nodes. Below them lie [`route`] (links, addresses and routes;
//! [`route_monitor`] tells when some may be gone), [`nft`] (packet rules) and [`conntrack`], all on
//! [`netlink`].
//!
//! This crate knows nothing of the Kubernetes API or of containers and depends on no crate of ours but `trace`: it is
//! given a namespace's path and a name to log. It never runs `ip`, `nft` or `iptables`; everything goes by netlink.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use cidr::{Cidr, CidrError};
pub use error::NetworkError;

pub mod bridge;
pub mod cni;
pub mod conntrack;
pub mod host_gateway;
pub mod netlink;
pub mod nft;
pub mod route;
pub mod route_monitor;

mod cidr;
mod error;
mod sysctl;

/// The name of the pod's interface inside its network namespace.
pub const POD_INTERFACE: &str = "eth0";

/// What the network has to know about one pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxNetwork {
    /// The sandbox's identity: addresses and links are owned by it, and all calls about it must use the same.
    pub id: String,
    /// A path that opens the network namespace, such as `/proc/PID/ns/net` or a bind mount. Only [`PodNetwork::setup`]
    /// needs it to exist.
    pub netns_path: PathBuf,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub hostname: String,
    pub port_mappings: Vec<PortMapping>,
}

/// A port of the host that leads to a port of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortMapping {
    /// The host's address to listen on; all of them when absent.
    pub host_ip: Option<IpAddr>,
    pub host_port: u16,
    pub container_port: u16,
    pub protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// The number that packets have it by.
    pub fn number(self) -> u8 {
        let number = match self {
            Protocol::Tcp => libc::IPPROTO_TCP,
            Protocol::Udp => libc::IPPROTO_UDP,
            Protocol::Sctp => libc::IPPROTO_SCTP,
        };
        number as u8
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        })
    }
}

/// What a sandbox was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodAddresses {
    /// At most one address of each family; the first is the pod's primary address.
    pub ips: Vec<IpAddr>,
    /// The next hop of the default route for the address at the same index.
    pub gateways: Vec<IpAddr>,
    /// The interface's name inside the pod.
    pub interface: String,
}

/// Notes that a pod has been connected.
fn mark_connected(sandbox: &SandboxNetwork) {
    let pod = format!("pods/{}/{}", sandbox.namespace, sandbox.name);
    trace::mark("network/connected", pod, sandbox.uid.clone());
}

/// Connects sandboxes to the network. All methods may be called at once for different sandboxes; calls for one
/// sandbox must follow each other.
#[async_trait]
pub trait PodNetwork: Send + Sync {
    /// Connects a sandbox. Called again for a connected sandbox it answers with the same addresses. After an error
    /// nothing remains that [`teardown`](PodNetwork::teardown) would have to take back, but calling it is harmless.
    async fn setup(&self, sandbox: &SandboxNetwork) -> Result<PodAddresses, NetworkError>;

    /// Disconnects a sandbox and frees its addresses. Succeeds when there is nothing (left) to do, also when the
    /// namespace is gone already.
    async fn teardown(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError>;

    /// Whether pods can be connected now; the error says why not, in words for a node's `NetworkUnavailable` reason.
    async fn status(&self) -> Result<(), NetworkError>;

    /// Frees the addresses, links and rules of every sandbox that is not in `live`, and takes over those that are. To
    /// be called once after a start, when the runtime knows which sandboxes survived and before it creates new ones.
    async fn reconcile(&self, live: &[SandboxNetwork]) -> Result<(), NetworkError>;

    /// Takes the blocks that this node's pods get addresses from, as the node's `spec.podCIDRs` say. Sandboxes that
    /// are connected keep their addresses.
    async fn update_pod_cidrs(&self, pod_cidrs: &[Cidr]) -> Result<(), NetworkError>;
}
