//! The endpoints behind Services. `service` is what their controllers read of Services and pods.

pub mod cluster_dns;
pub mod endpoint_slice;
pub mod endpoint_slice_mirroring;
pub mod endpoints;
mod service;
