//! The controllers against a real API server in the same process; the tests play scheduler and kubelet.

mod cluster;
mod deployments;
mod dns;
mod faults;
mod garbage;
mod jobs;
mod leader;
mod namespaces;
mod nodes;
mod quotas;
mod sets;
mod storage;
