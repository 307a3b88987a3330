//! The kinds: what the API calls them, how they look in a table, what they default to, what they accept.
//!
//! Start with [`Resource`], the row that describes one served resource, and [`Rules`], what a kind decides for
//! itself; `kinds/` has one file per kind and [`kinds::all`] is the sorted table of them. [`Error`] is the failure a
//! client sees, [`FieldError`] one reason for it.
//!
//! Nothing here does IO or knows of a store, a connection or a clock it was not given. Objects are `serde_json`
//! values in the normal form that `schema` decodes to.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admission_match;
pub mod conditions;
mod convert;
pub mod cron;
pub mod custom;
mod devices;
mod error;
pub mod expressions;
mod field;
pub mod kinds;
pub mod local_volumes;
mod meta;
mod metadata;
pub mod names;
pub mod pod_spec;
pub mod policy_types;
pub mod print;
mod problems;
pub mod quota;
mod resource;
pub mod selector;
mod value;
pub mod warnings;
mod webhook_client;
mod workload;

pub use convert::convert;
pub use error::{Cause, Details, Error, Reason, Result};
pub use field::{FieldError, FieldProblem, Path};
pub use meta::{LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference};
pub use metadata::{validate_label_selector, validate_labels, validate_metadata, validate_metadata_update};
pub use problems::{MAX_WHOLE, Problems};
pub use resource::{
    ALL_VERBS, Column, FieldPaths, Generation, IndexedField, PROXY_VERBS, Plain, Requester, Resource, Rules,
    Subresource, Verb,
};
pub use schema::Value;
pub use value::Fields;
pub(crate) use value::{repeats, texts};
