//! The audit log: what of each request is written down, and where it goes.
//!
//! Start with [`Policy`], the pure decision what to note of a request, and [`Event`], what is noted. [`Auditor`] hands
//! events to backends: [`LogFile`], which rotates, and batches to a [`Sink`]. A backend has a bounded queue of its own, so
//! that none slows a request or another backend; what does not fit or cannot be written is counted.
//!
//! This crate knows no HTTP and no store. It must never depend on the server.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod auditor;
mod batch;
mod event;
mod log;
mod policy;
mod truncate;

pub use auditor::{Auditor, AuditorFigures};
pub use batch::{BatchOptions, Sink};
pub use event::{Event, ObjectReference, ResponseStatus, Stage, UserInfo};
pub use log::{LogFile, LogOptions};
pub use policy::{Level, Policy, PolicyError, Treatment};
pub use truncate::TruncateOptions;
