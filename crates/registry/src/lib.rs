//! The generic registry: every stored resource is read and written by the same few functions.
//!
//! Start with [`Registry`] and [`Served`], one resource as it is served. `create`, `update`, `delete` and `list` are the
//! operations; [`watch`] holds recent changes for all watchers and [`Watcher`] reads them for one; [`allocate`] gives
//! Services their addresses and ports; [`Encryption`] keeps chosen resources unreadable on the disk; [`CustomResources`] is the table of custom resources and `definitions` keeps it.
//!
//! The store is private to this crate: whoever wants to write goes through [`Registry`]. Nothing here knows HTTP: no
//! headers, queries, media types or framing. Those are `apiserver`'s, which this crate must never depend on.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod allocate;
mod codec;
mod companions;
mod create;
mod custom;
mod custom_resources;
mod decoded;
mod definitions;
mod delete;
mod encryption;
mod errors;
mod filter;
mod health;
mod labels;
mod list;
mod lookup;
mod managers;
mod metadata;
mod metrics;
mod namespace_locks;
mod options;
mod registry;
pub mod remarks;
mod seed;
mod served;
mod update;
pub mod watch;
mod watcher;

pub use allocate::{ServiceNetwork, Services};
pub use codec::EtcdCodec;
pub use custom::Custom;
pub use custom_resources::CustomResources;
pub use definitions::follow_definitions;
pub use delete::{DeleteOptions, Deleted, Preconditions, check_preconditions};
pub use encryption::{EncryptedEtcdCodec, Encryption};
pub use errors::{not_served, store_error};
pub use filter::{Filter, equal_to};
pub use labels::labels_of;
pub use list::{Continuation, ListOptions, ListRequest, Page, check_fields, list_metadata};
pub use lookup::{Part, StoreLookup};
pub use managers::{apply, forgotten_managers, track};
pub use metadata::{check_name, check_namespace};
pub use metrics::{StoreFigures, StoreMetrics};
pub use options::{FieldValidation, Scope, Tracking, WriteOptions};
pub use registry::{ObjectCount, Registry};
pub use seed::Seed;
pub use served::{Served, Stored};
pub use watcher::{WatchEvent, WatchRequest, Watcher};

/// The root of all keys, as upstream lays them out.
pub const STORE_ROOT: &str = "/registry";
