//! Tests of network policies with real packets, all in network namespaces of their own. They need root.

#[path = "../../../proxy/tests/root/fake_api.rs"]
mod fake_api;
#[path = "../../../network/tests/root/support.rs"]
mod support;

mod bypass;
mod follow;
mod kernel;
mod node;
mod traffic;
