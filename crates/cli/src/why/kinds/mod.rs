//! One file per kind: its row, and a function for each reason.

pub mod api_service;
pub mod cron_job;
pub mod custom_resource_definition;
pub mod daemon_set;
pub mod deployment;
pub mod horizontal_pod_autoscaler;
pub mod ingress;
pub mod job;
pub mod namespace;
pub mod network_policy;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_disruption_budget;
pub mod replica_set;
pub mod resource_quota;
pub mod service;
pub mod stateful_set;
pub mod webhook;
mod workload;
