//! A revisioned key space: transactions, ranges, watches, expiry, compaction.
//!
//! Start with [`Store`], the contract that all engines keep. `tests/contract` is that contract as
//! executable cases and runs over every engine.
//!
//! This crate knows nothing of Kubernetes objects: keys are text, values are bytes. It must never depend on `schema`
//! or `api`.

pub mod embedded;
pub mod etcd;
mod expiry;
mod history;
pub mod memory;
mod shared;
mod state;
mod types;

pub use types::*;
