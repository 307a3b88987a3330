//! A revisioned key space: transactions, ranges, watches, expiry, compaction.
//!
//! Start with [`Store`], the contract that all engines keep. `tests/contract` is that contract as
//! executable cases and runs over every engine.
//!
//! All engines keep the whole current state in memory (`state`), publish it without locks and remember recent events in one
//! ring (`shared`, `history`); they differ in what makes a write durable: nothing ([`memory`]), a log on a local disk
//! ([`embedded`]), an etcd cluster ([`etcd`]). [`serve`] speaks etcd's API for any of them.
//!
//! This crate knows nothing of Kubernetes objects: keys are text, values are bytes. It must never depend on `schema`
//! or `api`.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod backup;
pub mod codec;
pub mod embedded;
pub mod etcd;
mod expiry;
mod history;
pub mod memory;
pub mod serve;
mod shared;
mod state;
mod types;

pub use types::*;
