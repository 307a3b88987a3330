//! Who are you, and may you: pure decisions over what the server already holds in memory.
//!
//! Start with [`User`], then [`authenticate::Authenticators`], which turns credentials into one, and
//! [`Authorizer`], which answers whether a user may do what [`Attributes`] describes. [`impersonate`] makes
//! one user of another, [`bootstrap`] has the roles and bindings that a new cluster starts with, and [`configuration`]
//! reads the files that administrators write.
//!
//! Nothing here does IO or reads a clock: objects are pushed in as they change, the time is an argument, and what has
//! to be looked up comes through [`authenticate::Objects`]. It must never depend on the server or the store.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod authenticate;
pub mod authorize;
pub mod bootstrap;
pub mod configuration;
mod impersonate;
mod user;

pub use authenticate::Authenticators;
pub use authorize::{Attributes, Authorizer, Decision, forbidden};
pub use impersonate::{Mode as ImpersonationMode, impersonate};
pub use user::User;
