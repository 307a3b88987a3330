//! Turns what a request brings along into a user.
//!
//! Certificates come first, then bearer tokens. Credentials that are there and wrong are refused even where anonymous
//! requests are allowed, so that a client with an expired token learns of it.

mod jwt;
mod keys;
mod service_account;
mod token_file;
pub mod x509;

use std::sync::Arc;

use api::Resource;

use crate::User;

pub use keys::{KeyError, PublicKey, SigningKey};
pub use service_account::{Bound, IssuedToken, ServiceAccounts, TokenSpec};
pub use token_file::{TokenFile, TokenFileError};

/// What a request brings along.
#[derive(Clone, Debug, Default)]
pub struct Credentials<'a> {
    /// The user of the connection's verified client certificate, made once per connection by [`x509::user`].
    pub certificate: Option<Arc<User>>,
    /// The token of an `Authorization: Bearer` header.
    pub token: Option<&'a str>,
}

/// Why credentials were refused. Clients only see `Unauthorized`; this is for the log.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    #[error("the request has no credentials and anonymous requests are not allowed")]
    Missing,
    #[error("the bearer token is not known")]
    UnknownToken,
    #[error("the service account token is not valid: {0}")]
    ServiceAccountToken(String),
}

/// What a service account token is bound to, as the server's own state has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: String,
    /// When deletion was asked for, in seconds since the epoch.
    pub deleted_at: Option<i64>,
}

/// The server's own state, by which tokens are checked.
pub trait Objects: Send + Sync {
    fn identity(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Identity>;
}

/// The ways in, in the order in which they are tried.
#[derive(Default)]
pub struct Authenticators {
    pub tokens: TokenFile,
    pub service_accounts: Option<ServiceAccounts>,
    pub allow_anonymous: bool,
}

impl Authenticators {
    /// `now` is in seconds since the epoch.
    pub fn authenticate(
        &self,
        credentials: &Credentials,
        objects: &dyn Objects,
        now: i64,
    ) -> Result<Arc<User>, Refused> {
        if let Some(user) = &credentials.certificate {
            return Ok(user.clone());
        }
        match credentials.token {
            Some(token) => self.authenticate_token(token, None, objects, now).map(|(user, _)| user),
            None if self.allow_anonymous => Ok(Arc::new(User::anonymous())),
            None => Err(Refused::Missing),
        }
    }

    /// The user of a token, and those of the wanted audiences it is valid for. Without wanted audiences a token must be
    /// meant for the API server. This also answers a TokenReview.
    pub fn authenticate_token(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        objects: &dyn Objects,
        now: i64,
    ) -> Result<(Arc<User>, Vec<String>), Refused> {
        if let Some(user) = self.tokens.user(token) {
            // A token that names no audience is meant for this server.
            let own = self.service_accounts.as_ref().map(|accounts| accounts.audiences());
            let own = own.unwrap_or_default();
            let is_wanted = |own: &&String| audiences.is_none_or(|wanted| wanted.contains(own));
            let granted: Vec<String> = own.iter().filter(is_wanted).cloned().collect();
            return match granted.is_empty() && !own.is_empty() {
                true => Err(Refused::UnknownToken),
                false => Ok((user, granted)),
            };
        }
        let Some(accounts) = &self.service_accounts else {
            return Err(Refused::UnknownToken);
        };
        accounts.authenticate(token, audiences, objects, now)
    }
}
