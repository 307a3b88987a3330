//! SPDY/3.1, as far as Kubernetes uses it: streams over an upgraded connection, without flow control.
//!
//! Container runtimes stream exec, attach and port forwarding over it, older kubectls ask for it, and kubectl tunnels
//! it through WebSockets to forward ports. [`session::start`] runs either side of a connection.

pub(crate) mod frame;
pub(crate) mod headers;
pub mod session;

pub use session::{Role, Session, Stream};
