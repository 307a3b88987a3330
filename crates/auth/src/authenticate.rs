//! Turns what a request brings along into a user.
//!
//! Certificates come first, then bearer tokens. Credentials that are there and wrong are refused even where anonymous
//! requests are allowed, so that a client with an expired token learns of it.

mod bootstrap_token;
mod jwt;
mod keys;
pub mod oidc;
mod service_account;
mod token_file;
pub mod token_review;
pub mod x509;

use std::sync::Arc;

use api::kinds::secret::SECRET;
use api::{Resource, Value};

use crate::User;
use bootstrap_token::BootstrapToken;

pub use keys::{KeyError, PublicKey, SigningKey, to_pkcs8};
pub use service_account::{Bound, IssuedToken, ServiceAccounts, TokenSpec};
pub use token_file::{TokenFile, TokenFileError};

/// Why credentials were refused. Clients only see `Unauthorized`; this is for the log.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    #[error("the request has no credentials and anonymous requests are not allowed")]
    Missing,
    #[error("the bearer token is not known")]
    UnknownToken,
    #[error("the service account token is not valid: {0}")]
    ServiceAccountToken(String),
    #[error("the bootstrap token is not valid: {0}")]
    BootstrapToken(String),
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

    /// A whole object; only asked for what tokens are kept in.
    fn object(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value>;
}

/// The ways in, in the order in which they are tried.
#[derive(Default)]
pub struct Authenticators {
    pub tokens: TokenFile,
    pub service_accounts: Option<ServiceAccounts>,
    /// Whether Secrets of the type `bootstrap.kubernetes.io/token` are tokens.
    pub bootstrap_tokens: bool,
    pub anonymous: Anonymous,
}

/// Whom requests without credentials are let in as `system:anonymous`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    #[default]
    Nobody,
    Everybody,
    /// Only to these very paths.
    Paths(Vec<String>),
}

impl Anonymous {
    pub fn allows(&self, path: &str) -> bool {
        match self {
            Anonymous::Nobody => false,
            Anonymous::Everybody => true,
            Anonymous::Paths(paths) => paths.iter().any(|allowed| allowed == path),
        }
    }
}

impl Authenticators {
    /// The user of a token, and those of the wanted audiences it is valid for. Without wanted audiences a token must be
    /// meant for the API server. This also answers a TokenReview. `now` is in seconds since the epoch.
    pub fn authenticate_token(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        objects: &dyn Objects,
        now: i64,
    ) -> Result<(Arc<User>, Vec<String>), Refused> {
        if let Some(user) = self.tokens.user(token) {
            return self.for_own_audiences(user, audiences);
        }
        if let Some(token) = BootstrapToken::parse(token).filter(|_| self.bootstrap_tokens) {
            let secret = objects.object(&SECRET, bootstrap_token::NAMESPACE, &token.secret_name());
            let user = token.user(&secret.ok_or(Refused::UnknownToken)?, now);
            return self.for_own_audiences(Arc::new(user.map_err(Refused::BootstrapToken)?), audiences);
        }
        let Some(accounts) = &self.service_accounts else {
            return Err(Refused::UnknownToken);
        };
        accounts.authenticate(token, audiences, objects, now)
    }

    /// A token that names no audience is meant for this server.
    pub fn for_own_audiences(
        &self,
        user: Arc<User>,
        wanted: Option<&[String]>,
    ) -> Result<(Arc<User>, Vec<String>), Refused> {
        let own = self.own_audiences();
        let is_wanted = |own: &&String| wanted.is_none_or(|wanted| wanted.contains(own));
        let granted: Vec<String> = own.iter().filter(is_wanted).cloned().collect();
        match granted.is_empty() && !own.is_empty() {
            true => Err(Refused::UnknownToken),
            false => Ok((user, granted)),
        }
    }

    /// The audiences of tokens that are meant for this server.
    pub fn own_audiences(&self) -> &[String] {
        let accounts = self.service_accounts.as_ref();
        accounts.map(ServiceAccounts::audiences).unwrap_or_default()
    }
}
