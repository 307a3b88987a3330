//! Admission: what the cluster's rules make of a request after it was authorized and before it is stored.
//!
//! Start with [`Plugin`], what one rule is, and [`Chain`], the order in which they run; [`plugins::TABLE`] lists all of
//! them. Plugins read other objects only through [`Lookup`], so that they stay free of IO; those that must call out
//! (webhooks) are async.
//!
//! This crate must never depend on `store` or `apiserver`.

mod chain;
pub mod plugins;
#[cfg(test)]
mod testing;

pub use chain::{Attributes, Chain, Lookup, Operation, Plugin};
