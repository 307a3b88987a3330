//! The components under their upstream names: flags in, a running component out.

pub mod apiserver;
