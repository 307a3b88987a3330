//! Tests that make network namespaces, links and packet rules, all in namespaces of their own. They need root.

mod bridge;
mod cni;
mod nft;
mod ports;
mod repair;
mod spoof;
mod support;
