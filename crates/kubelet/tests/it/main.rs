//! The kubelet as a whole, on a real container runtime and an API server in memory.

mod api;
mod containerd;
mod node;
mod pods;
