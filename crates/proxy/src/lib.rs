//! The service proxy: makes Services reachable on this node.
//!
//! Start at [`model`], which says purely what Services mean for traffic. `nftables` turns that into packet rules.
//!
//! Addresses become pods' here and nowhere else; nothing in this crate writes to the API server, and only `nftables`
//! and `conntrack` touch the kernel.

pub mod model;
pub mod nftables;
pub mod objects;
