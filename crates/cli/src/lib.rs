//! Commands that talk to a cluster as any client does.
//!
//! Start with [`trace`]: where the time went between `apply` and Ready. The kubectl-compatible client will stand here.
//!
//! This crate reaches a cluster only through `client`; it must never depend on a component.

pub mod trace;
