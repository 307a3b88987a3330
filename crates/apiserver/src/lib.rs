//! The API server: HTTP, the request pipeline, verbs, discovery, proxying to nodes.
//!
//! Start with [`pipeline`], which a request passes top to bottom; `verbs` is what happens to requests for resources, with
//! the help of the crate `registry`; `watching` is how changes reach clients. `start` wires them to a store.
//!
//! Modules stand in layers. What reads and writes bytes (`body`, `request`, `negotiate`, `respond`, …) knows nothing of
//! the server. Its parts with a state of their own (`gate`, `fairness`, `aggregation`, `metrics`, `kubelets`, `usage`) know the
//! registry and not each other's user, [`ApiServer`], which holds them all (`state`). What answers requests is given the
//! whole server; `pipeline` and `start` are on top.
//!
//! Only the registry writes to the store, which nothing here can reach. This crate must never depend on a component that
//! is a client of it: controllers, scheduler, kubelet, proxy.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod aggregation;
mod aggregator;
mod audit_trail;
mod backup;
mod body;
mod body_budget;
mod bootstrap;
mod call;
mod component_status;
mod connect;
mod deadline;
mod decode;
mod device_admin;
mod dial;
mod discovery;
mod dispatch;
mod errors;
mod escalation;
mod fairness;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod health;
mod kubelets;
mod list_body;
mod metrics;
mod negotiate;
mod node_blocks;
mod nonresource;
mod openapi;
mod options;
mod patch_identity;
mod patch_type;
mod patching;
mod peer;
pub mod pipeline;
mod request;
mod resolve;
mod resource_metrics;
mod respond;
mod reviews;
mod server;
mod stall;
mod start;
mod state;
mod subresource;
mod table;
mod transport;
mod usage;
mod verbs;
mod version;
mod watch_socket;
mod watching;
mod websocket;

pub use aggregation::FrontProxy;
pub use auth::authorize::configuration::{AuthorizerSpec, WebhookSpec};
pub use bootstrap::{ClusterFacts, KUBELET_CLIENT, LocalNode};
pub use fairness::{MAX_READS_IN_FLIGHT, MAX_WRITES_IN_FLIGHT};
pub use gate::{
    AuthorizationSource, AuthorizersError, FrontProxies, FrontProxyError, FrontProxyOptions, Gate, GateOptions,
    Issuers, IssuersError, IssuersSource, KubeconfigWebhook, TokenWebhook,
};
pub use kubelets::{KubeletDialer, KubeletTls, KubeletTrust};
pub use registry::{EncryptedEtcdCodec, Encryption, EtcdCodec, STORE_ROOT, ServiceNetwork, Services};
pub use server::{ServingTls, serve, serve_within};
pub use start::{AdmissionOptions, Options};
pub use state::ApiServer;
pub use transport::InProcess;
pub use version::GIT_VERSION;
