//! The kubelet.
