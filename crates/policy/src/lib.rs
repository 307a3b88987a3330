//! NetworkPolicy: which connections of this node's pods are let through.
//!
//! Start at [`model`], which says purely what policies, pods and namespaces mean for the addresses of this node's pods.
//! [`nftables`] makes it so by packet rules, [`run`] follows the API server and keeps the two in step, and
//! [`PolicedNetwork`] lets no pod start before the rules that hold for it are in the kernel.
//!
//! Nothing in this crate writes to the API server, gives addresses or leads packets anywhere: it only lets them pass or
//! not, after the proxy has chosen where they go and before anybody rewrites where they come from.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod enforcer;
mod grant;
mod listing;
pub mod model;
mod name_servers;
pub mod nftables;
pub mod objects;
mod run;

pub use enforcer::{Enforcer, PolicedNetwork};
pub use grant::grant;
pub use run::{DEFAULT_TABLE, PolicyError, PolicyOptions, remove, run};
