//! Who are you, and may you: pure decisions over what the server already holds in memory.
//!
//! Start with [`User`], then [`authenticate::Authenticators`], which turns credentials into one, and
//! [`authorize::Authorizers`], which answers whether a user may do what [`Attributes`] describes. [`impersonate`] makes
//! one user of another, and [`bootstrap`] has the roles and bindings that a new cluster starts with.
//!
//! Nothing here does IO or reads a clock: objects are pushed in as they change, the time is an argument, and what has
//! to be looked up comes through [`authenticate::Objects`]. It must never depend on the server or the store.

pub mod authenticate;
pub mod authorize;
pub mod bootstrap;
mod impersonate;
mod user;

pub use authenticate::{Authenticators, Credentials};
pub use authorize::{Attributes, Authorizer, Authorizers, Decision, forbidden};
pub use impersonate::{Mode as ImpersonationMode, impersonate};
pub use user::User;
