//! The controllers against a real API server in the same process; the tests play scheduler and kubelet.

mod accounts;
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
mod scales;
mod sets;
mod storage;
