//! Commands that talk to a cluster as any client does.
//!
//! Start with [`why`]: why an object is not healthy; [`trace`]: where the time went between `apply` and Ready.
//!
//! This crate reaches a cluster only through `client`; it must never depend on a component.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod trace;
pub mod why;
