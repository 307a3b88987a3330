//! The client of the API server that every component is written against.
//!
//! Start with [`Client`]: `client.resource(POD).in_namespace("default").get::<Pod>("web")`. Below it lies a
//! [`Transport`], which is either the API server in the same process or a TLS connection ([`HttpTransport`]). Above it
//! lie what reconcilers need: a [`Reflector`] that keeps a [`Cache`] of narrow projections current, [`Informers`] that
//! share them, a [`WorkQueue`], an [`EventRecorder`] and [`leader`] election. Beside them stands [`Webhook`], the other
//! direction: calls from the API server to the cluster's webhooks.
//!
//! But for events, leases and service accounts nothing here knows a kind: resources are rows of the `api` crate's table, objects are JSON
//! bytes, and what a caller decodes of them is the caller's projection. This crate must never depend on a component or on the store.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod account;
mod backoff;
mod cache;
mod client;
mod config;
mod connection;
pub mod destination;
mod discovery;
mod error;
mod events;
mod informers;
mod key;
mod kubeconfig;
pub mod leader;
mod options;
mod queue;
mod reflector;
mod request;
mod status;
mod tls;
mod transport;
mod watch;
mod webhook;
pub mod when;

#[cfg(test)]
mod fake;

pub use account::ServiceAccounts;
pub use backoff::Backoff;
pub use cache::{Cache, Freshness, IndexFunction, Object, WithMetadata};
pub use client::Client;
pub use config::{Config, ConfigError, Impersonate, Source, Token};
pub use connection::HttpTransport;
pub use error::{Error, Result};
pub use events::{EventRecorder, EventType, ObjectReference};
pub use informers::Informers;
pub use key::Key;
pub use kubeconfig::default_kubeconfig_path;
pub use options::{DeleteOptions, List, ListMeta, ListOptions, Patch, Propagation, WatchOptions, WriteOptions};
pub use queue::{QueueFigures, QueueMetrics, QueueState, WorkQueue};
pub use reflector::{Reflector, Selection};
pub use request::Api;
pub use status::decode_status;
pub use tls::{AnyServer, SERVING_CHALLENGE, shown_certificate};
pub use transport::{Body, Duplex, Transport, TransportError, Upgrade, body_from_bytes};
pub use watch::{WatchEvent, WatchStream};
pub use webhook::{ServiceResolver, Webhook, WebhookError, webhook_tls};
