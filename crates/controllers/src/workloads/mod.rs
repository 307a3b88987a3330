//! The workloads: each turns a template and a count, a schedule or a set of nodes into pods.
//!
//! `history`, `replicas` and `template` are what they share: revisions, ordering pods for deletion, pods from templates.

pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
mod history;
pub mod job;
pub mod replica_set;
mod replicas;
pub mod stateful_set;
mod template;
