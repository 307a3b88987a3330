//! The bounds within which Karve's servers take connections, the same on every port.
//!
//! Begin at [`Connections`], which says who may stay, and [`http_server`], which bounds what one connection may do. It
//! knows nothing of Kubernetes, of TLS or of what is served, and must depend on no other crate of Karve.

mod connections;
mod http;

pub use connections::{Connection, ConnectionLimits, Connections};
pub use http::{HANDSHAKE_TIMEOUT, HEADER_TIMEOUT, MAX_HEADER_BYTES, MAX_STREAMS, http_server};
