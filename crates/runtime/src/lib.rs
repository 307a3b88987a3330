//! The embedded container runtime: the CRI without containerd.
//!
//! Start with `service`, the implementation of [`cri::Runtime`] that [`open`] gives. It runs in Karve's process, where
//! nothing may fork; `supervisor` is the small process beside each pod that does, and `protocol` how the two talk.
//! `plan` decides, without IO, what a supervisor is told (`spec`). `image` keeps images, `cgroup` and `sys` wrap
//! what the kernel offers.
//!
//! This crate knows no Kubernetes objects and speaks to no API server. Of Karve it uses only `cri`, `network` and
//! `trace`.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod apparmor;
mod capability;
mod cgroup;
mod disk;
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod link;
mod plan;
mod procfs;
mod program;
mod protocol;
mod seccomp;
mod service;
mod spec;
pub mod supervisor;
mod sys;
mod tree;
mod within;
mod zygote;

pub use image::ImageError;
pub use image::builtin::NAME as BUILTIN_IMAGE;
pub use image::registry::Mirror;
pub use image::unpacker;
pub use service::{Embedded, OpenError, Options, open};
