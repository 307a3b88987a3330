//! The bounds within which Karve's servers take connections, the same on every port.
//!
//! Begin at [`accept`], the loop in which every server takes connections. [`Connections`] says who may stay,
//! [`http_server`] bounds what one connection may do, and [`serve`] ends one that nobody uses. It knows nothing of
//! Kubernetes, of TLS or of what is served, and must depend on no other crate of Karve.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod accept;
mod activity;
mod connections;
mod http;

pub use accept::{AnyError, accept, client_id};
pub use activity::{Activity, Busy, Sending, serve};
pub use connections::{Connection, ConnectionLimits, Connections};
pub use http::{
    HANDSHAKE_TIMEOUT, HEADER_TIMEOUT, IDLE_TIMEOUT, MAX_ERROR_RESETS, MAX_HEADER_BYTES, MAX_PENDING_RESETS,
    MAX_STREAMS, http_server,
};
