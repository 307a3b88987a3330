//! Admission: what the cluster's rules make of a request after it was authorized and before it is stored.
//!
//! Start with [`Plugin`], what one rule is, and [`Chain`], the order in which they run; [`plugins::TABLE`] lists all of
//! them. Plugins read other objects only through [`Lookup`], so that they stay free of IO; those that must call out
//! (`webhook`) are async. `policy` evaluates the rules that the cluster's owner wrote in CEL.
//!
//! This crate must never depend on `store` or `apiserver`.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod chain;
mod conditions;
mod expressions;
mod matching;
pub mod plugins;
mod policy;
mod reinvoke;
mod remarks;
mod services;
mod settings;
#[cfg(test)]
mod testing;
mod webhook;

pub use chain::{Attributes, Chain, Companion, Lookup, Operation, Plugin};
pub use reinvoke::Reinvocation;
pub use remarks::Remarks;
pub use services::{Endpoint, Services, endpoints, take_one};
pub use settings::Settings;
