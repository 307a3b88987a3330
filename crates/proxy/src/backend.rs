//! What carries the model to the kernel. A new way to do that is one implementation of [`Backend`].

use std::collections::BTreeSet;
use std::net::SocketAddr;

use network::netlink;

use crate::model::{ServiceTable, Step};
use crate::nftables::NftablesError;

/// Makes traffic go as the model says. A backend decides nothing: who has which address and port, and where packets to
/// it go, stands in the model.
///
/// After an error of any method the kernel's state is not known, and the next call is [`Backend::resync`].
pub trait Backend: Send {
    /// Makes a change of the model true, touching only what differs.
    fn apply(&mut self, step: &Step) -> Result<(), BackendError>;

    /// Lets connections to `new` in place of `old` be as they are, whatever Services say.
    fn protect(&mut self, old: &BTreeSet<SocketAddr>, new: &BTreeSet<SocketAddr>) -> Result<(), BackendError>;

    /// Compares everything with the kernel's state and mends what differs, whatever was applied before.
    fn resync(&mut self, wanted: Wanted<'_>) -> Result<(), BackendError>;
}

/// All that a backend makes true.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub services: &'a ServiceTable,
    /// Where components of the cluster answer, by TCP: no Service leads away from there.
    pub protected: &'a BTreeSet<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error(transparent)]
    Nftables(#[from] NftablesError),

    #[error("failed to watch nftables rules: {0}")]
    Watch(netlink::Error),

    #[error("failed to set up routes for the addresses of Services: {0}")]
    Route(netlink::Error),

    #[error("failed to delete conntrack entries of removed UDP endpoints: {0}")]
    Conntrack(netlink::Error),

    /// The work was cut off by the process itself, which is shutting down or has a bug.
    #[error("the update of nftables rules was interrupted: {0}")]
    Interrupted(String),
}
