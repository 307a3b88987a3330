//! Who are you, and may you: pure decisions over what the caller has at hand.
//!
//! Start with [`User`] and [`Attributes`]; [`Decision`] is what an authorizer answers.
//!
//! Nothing here does IO or keeps a connection. This crate must never depend on `store` or `apiserver`.

mod attributes;
mod user;

pub use attributes::{Attributes, Decision};
pub use user::User;
