//! What happens to nodes, and to pods because of their node. `node_fit` tells whether a pod may be on a node at all.

pub mod node_fit;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod taint_eviction;
pub mod ttl;
