//! Embedded container runtime.
