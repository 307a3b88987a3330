//! The service proxy: makes Services reachable on this node.
//!
//! Start at [`run`], which follows the API server. [`model`] says purely what Services mean for traffic, a [`Backend`]
//! makes it so ([`nftables`] by packet rules), [`Applied`] keeps the two in step, and `conntrack` forgets UDP connections
//! to endpoints that are gone.
//!
//! Addresses become pods' here and nowhere else. Nothing in this crate writes to the API server, and it knows nothing
//! of how pods got their addresses.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod apply;
mod backend;
mod connection_timeouts;
mod conntrack;
mod health;
mod metrics;
pub mod model;
pub mod nftables;
mod node_addresses;
pub mod objects;
mod reachable;
mod run;

pub use apply::Applied;
pub use backend::{Backend, BackendError, Wanted};
pub use run::{DEFAULT_TABLE, ProxyOptions, remove, run};
