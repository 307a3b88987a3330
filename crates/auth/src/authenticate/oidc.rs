//! ID tokens of OpenID Connect issuers: whom they name, and whether to believe them.
//!
//! [`JwtAuthenticator`] is one issuer with its rules, made from [`spec::JwtAuthenticatorSpec`]. The keys of an issuer are
//! fetched elsewhere and handed in as a [`KeySet`].

mod claims;
mod compile;
mod key_set;
pub mod spec;
mod token;

pub use compile::JwtAuthenticator;
pub use key_set::{Algorithm, KeySet, KeySetError};
pub use token::{TokenError, UnverifiedToken};

#[cfg(test)]
mod tests;
