//! The service proxy: makes Services reachable on this node.
//!
//! Start at [`run`], which follows the API server. [`model`] says purely what Services mean for traffic, a [`Backend`]
//! makes it so ([`nftables`] by packet rules), [`Applied`] keeps the two in step, and `conntrack` forgets UDP connections
//! to endpoints that are gone.
//!
//! Addresses become pods' here and nowhere else. Nothing in this crate writes to the API server, and it knows nothing
//! of how pods got their addresses.

mod apply;
mod backend;
mod conntrack;
mod health;
pub mod model;
pub mod nftables;
mod node_places;
pub mod objects;
mod reachable;
mod run;

pub use apply::Applied;
pub use backend::{Backend, BackendError, Wanted};
pub use run::{DEFAULT_TABLE, ProxyOptions, remove, run};
