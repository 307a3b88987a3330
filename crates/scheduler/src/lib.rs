//! The scheduler: which node each pod runs on.
//!
//! Start with [`core`], the scheduler without IO: changes of pods and nodes go in, decisions come out. `plugins` has one
//! file per plugin behind the small trait in [`framework`]; `nodes` is the node table in columns, `classes` the work that
//! equal pods share, `decide` a single decision. `run` connects all of it to an API server.
//!
//! Decisions never wait for a write: a decided pod is counted on its node at once and its binding is written in the
//! background. This crate knows only the API; it must never depend on the API server, the store or a node.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod budgets;
mod classes;
pub mod config;
pub mod core;
mod decide;
mod dice;
mod failure;
pub mod framework;
mod metrics;
pub mod node;
mod nodes;
mod nominations;
pub mod plugins;
pub mod pod;
mod preempt;
mod profile;
mod quantity;
mod queue;
mod queued_pod;
mod rejection;
mod resources;
mod run;
mod volumes;
mod waiting;

pub use budgets::Budgets;
pub use dice::Dice;
pub use failure::Failure;
pub use metrics::SchedulerMetrics;
pub use nodes::{NodeId, Nodes};
pub use profile::Profile;
pub use queued_pod::QueuedPod;
pub use resources::{Requests, Resources};
pub use run::{SchedulerOptions, run};
pub use waiting::WaitingPods;
