//! The container runtime interface (CRI): how a kubelet drives whatever runs its containers.
//!
//! Start with [`Runtime`], the trait every runtime implements. [`connect`] gives the one that speaks gRPC to
//! containerd or CRI-O; the `runtime` crate gives the embedded one; [`serve`] puts either behind a socket. All three
//! speak in the messages of [`v1`], so nothing is translated between them.
//!
//! This crate knows no Kubernetes objects and runs no containers. It depends on no other crate of Karve.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod client;
mod error;
mod methods;
mod observe;
mod server;
mod stream;

pub use client::{connect, connect_with};
pub use error::{Code, Error, Result};
pub use methods::Runtime;
pub use observe::{Observer, observe};
pub use server::{StreamUrls, serve, serve_with_streams};
pub use stream::{Duplex, EventStream, ExecStatus, PortTarget, Reader, StreamTarget, Streams, TerminalSize, Writer};

/// An annotation of a container by which Karve's kubelet tells Karve's runtime at how many bytes it rotates the log, so
/// that a container that prints faster than logs are looked at waits instead of filling the disk. Others ignore it.
pub const LOG_MAX_BYTES: &str = "karve.dev/log-max-bytes";

/// The messages of `runtime.v1`, as prost generates them from `proto/`.
#[allow(clippy::all, missing_docs)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");

    impl std::fmt::Debug for AuthConfig {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("AuthConfig")
                .field("username", &self.username)
                .field("server_address", &self.server_address)
                .finish_non_exhaustive()
        }
    }
}
