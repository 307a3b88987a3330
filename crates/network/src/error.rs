//! The failures of the pod network.

use std::io;
use std::path::PathBuf;

use crate::Cidr;

/// One variant per failed operation.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No pod can be connected before the node has been given its block.
    #[error("the node has no pod CIDR yet")]
    NoPodCidr,

    #[error("all addresses of {block} are in use")]
    AddressesExhausted { block: Cidr },

    #[error("the pod CIDR {block} is too small: it has no room for a gateway and a pod")]
    BlockTooSmall { block: Cidr },

    #[error("open network namespace {}", path.display())]
    OpenNamespace { path: PathBuf, source: io::Error },

    #[error("{operation}")]
    Kernel { operation: String, source: io::Error },

    #[error("{operation} {}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}
