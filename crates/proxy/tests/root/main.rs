//! Tests of the proxy with real packets, all in network namespaces of their own. They need root.

#[path = "../../../network/tests/root/support.rs"]
mod support;

mod fake_api;
mod follow;
mod traffic;
