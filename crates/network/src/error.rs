//! The failures of the pod network.

use std::io;
use std::path::PathBuf;

use crate::{Cidr, Protocol, netlink, nft};

/// One variant per failed operation.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No pod can be connected before the node has been given its block.
    #[error("the node has no pod CIDR yet")]
    NoPodCidr,

    #[error("all addresses of the pod CIDR {block} are in use")]
    AddressesExhausted { block: Cidr },

    #[error("the pod CIDR {block} is too small: it has no room for a gateway and a pod")]
    BlockTooSmall { block: Cidr },

    #[error("sandbox id {id:?} is refused: it must be printable without spaces")]
    SandboxId { id: String },

    #[error("network interface {name} cannot be used as the pod bridge: {reason}")]
    BridgeUnusable { name: String, reason: &'static str },

    #[error(
        "host port {port}/{protocol} is in use on this node: a program or another pod listens on it; choose another hostPort"
    )]
    HostPortInUse { port: u16, protocol: Protocol },

    #[error("host port {port}/{protocol} is reserved for the node's own components; choose another hostPort")]
    HostPortReserved { port: u16, protocol: Protocol },

    #[error("failed to reserve host port {port}/{protocol}: {source}")]
    HoldPort {
        port: u16,
        protocol: Protocol,
        source: io::Error,
    },

    #[error("pod {pod} is not started because its NetworkPolicies cannot be enforced: {reason}")]
    PoliciesNotEnforced { pod: String, reason: String },

    /// The work was cut off by the process itself, which is shutting down or has a bug.
    #[error("the work on the network was interrupted: {0}")]
    Interrupted(String),

    #[error("failed to open network namespace {}: {source}", path.display())]
    OpenNamespace { path: PathBuf, source: io::Error },

    /// A request about links, addresses or routes that the kernel refused.
    #[error("failed to {operation}: {source}")]
    Kernel { operation: String, source: netlink::Error },

    /// Packet rules that the kernel refused.
    #[error("failed to change nftables rules: {source}")]
    Rules {
        #[from]
        source: nft::Error,
    },

    #[error("failed to {operation} {}: {source}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// What CNI plugins, or their configuration, would not do.
    #[error(transparent)]
    Cni(#[from] crate::cni::CniError),

    /// A line of the journal of allocations that makes no sense.
    #[error("failed to read {}, line {line}: {reason}", path.display())]
    Journal {
        path: PathBuf,
        line: usize,
        reason: &'static str,
    },
}

/// Names the operation that a netlink request belonged to.
pub(crate) trait During<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T, NetworkError>;
}

impl<T> During<T> for Result<T, netlink::Error> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T, NetworkError> {
        self.map_err(|source| NetworkError::Kernel {
            operation: operation(),
            source,
        })
    }
}
