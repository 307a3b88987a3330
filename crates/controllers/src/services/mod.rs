//! The endpoints behind Services, and the addresses of LoadBalancers. `service` is what their controllers read of Services and pods.

pub mod cluster_dns;
pub mod endpoint_slice;
pub mod endpoint_slice_mirroring;
pub mod endpoints;
pub mod load_balancer;
mod service;
pub mod service_cidr;
