//! Who makes a request: what it brings along, in the order in which it is looked at.

use std::sync::Arc;

use admission::Lookup;
use api::{Error, Reason, Resource, Value};
use auth::User;
use auth::authenticate::{Anonymous, Identity, Objects, Refused, x509};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use registry::Registry;
use tracing::debug;

use super::Gate;
use crate::peer::{ClientCertificate, Peer};

/// Who makes this request for this path. Credentials that are there and wrong are refused even where anonymous requests
/// are allowed, so that a client with an expired token learns of it.
pub async fn authenticate(
    gate: &Gate,
    registry: &Registry,
    peer: &Peer,
    (headers, path): (&HeaderMap, &str),
) -> Result<Arc<User>, Error> {
    let (certificate, is_proxy) = match peer {
        Peer::InProcess(user) => return Ok(user.clone()),
        Peer::Tls {
            certificate,
            is_front_proxy,
            ..
        } => (certificate.as_ref(), *is_front_proxy),
    };
    let proxies = gate.front_proxies.as_ref().filter(|_| is_proxy);
    if let Some(user) = proxies.and_then(|proxies| proxies.user(headers)) {
        return Ok(Arc::new(user));
    }
    // A token that is no text is a wrong one, and whoever shows it is not nobody.
    let header = headers
        .get(AUTHORIZATION)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let token = header.as_deref().and_then(bearer);
    let now = schema::time::now().seconds;
    if let Some(user) = certified(certificate, token.is_some(), now)? {
        let node = certificate.zip(user.node_name());
        if node.is_some_and(|(certificate, name)| gate.is_deleted_node(registry, name, certificate.issued)) {
            debug!(user = user.name, "Refused the client certificate of a deleted node");
            return Err(unauthorized());
        }
        return Ok(user);
    }
    match token {
        Some(token) => {
            let found = gate.authenticate_token(registry, token, None).await;
            found.map(|(user, _)| user).map_err(|refused| {
                debug!(refused, "Failed to authenticate a request");
                unauthorized()
            })
        }
        None if gate.is_open_to_anonymous(path) => Ok(Arc::new(User::anonymous())),
        None => {
            debug!(refused = %Refused::Missing, "Failed to authenticate a request");
            Err(unauthorized())
        }
    }
}

impl Gate {
    /// The user of a token, and for which of the wanted audiences it is good; this also answers a TokenReview. Those who
    /// know tokens in this process come first, then issuers, then the webhook.
    pub async fn authenticate_token(
        &self,
        registry: &Registry,
        token: &str,
        wanted: Option<&[String]>,
    ) -> Result<(Arc<User>, Vec<String>), String> {
        let now = schema::time::now().seconds;
        let local = &self.authenticators;
        let mut problems = Vec::new();
        match local.authenticate_token(token, wanted, &RegistryObjects(registry), now) {
            Ok(found) => return Ok(found),
            Err(Refused::UnknownToken) => {}
            Err(refused) => problems.push(refused.to_string()),
        }
        if let Some(issuers) = &self.issuers {
            match issuers.authenticate(token, now).await {
                Ok(Some(user)) => match local.for_own_audiences(user, wanted) {
                    Ok(found) => return Ok(found),
                    Err(refused) => problems.push(refused.to_string()),
                },
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if let Some(webhook) = &self.token_webhook {
            let own = local.own_audiences();
            match webhook.authenticate(token, wanted.unwrap_or(own), own).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        match problems.is_empty() {
            true => Err("invalid bearer token".to_owned()),
            false => Err(format!("[invalid bearer token, {}]", problems.join(", "))),
        }
    }

    /// Whether a request for this path needs no credentials. The configuration file has the last word.
    pub(super) fn is_open_to_anonymous(&self, path: &str) -> bool {
        let by_file = self.issuers.as_ref().and_then(|issuers| issuers.anonymous());
        let anonymous: &Anonymous = by_file.as_ref().unwrap_or(&self.authenticators.anonymous);
        !self.authorizers.allows_everything() && anonymous.allows(path)
    }
}

fn unauthorized() -> Error {
    Error::new(Reason::Unauthorized, "Unauthorized")
}

/// The user of a connection's certificate. TLS looked at it when the connection began, and that may be long ago.
fn certified(certificate: Option<&ClientCertificate>, has_token: bool, now: i64) -> Result<Option<Arc<User>>, Error> {
    match certificate {
        Some(expired) if expired.expires < now && has_token => Ok(None),
        // Somebody who shows a certificate is not nobody.
        Some(expired) if expired.expires < now => Err(unauthorized()),
        certificate => Ok(certificate.map(|certificate| certificate.user.clone())),
    }
}

/// Whom a connection's certificate names; read once per connection.
pub fn client_certificate(der: &[u8]) -> Option<ClientCertificate> {
    match x509::user(der) {
        Ok(subject) => Some(ClientCertificate {
            user: Arc::new(subject.user),
            issued: subject.issued,
            expires: subject.expires,
        }),
        Err(error) => {
            debug!(%error, "Failed to read a user from a client certificate");
            None
        }
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

/// What tokens are bound to, as the registry has it.
struct RegistryObjects<'a>(&'a Registry);

impl Objects for RegistryObjects<'_> {
    fn identity(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Identity> {
        let object = self.0.lookup().get(resource, namespace, name)?;
        let metadata = &object["metadata"];
        let deleted = metadata["deletionTimestamp"]
            .as_str()
            .and_then(|text| schema::time::parse(text).ok());
        Some(Identity {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            deleted_at: deleted.map(|instant| instant.seconds),
        })
    }

    fn object(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        self.0
            .lookup()
            .get(resource, namespace, name)
            .map(|object| (*object).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_counts_until_it_expires_however_old_the_connection() {
        let certificate = ClientCertificate {
            user: Arc::new(User::system("system:node:a", &["system:nodes"])),
            issued: 0,
            expires: 100,
        };
        let name = |has_token, now| {
            certified(Some(&certificate), has_token, now).map(|user| user.map(|user| user.name.clone()))
        };
        assert_eq!(name(false, 100), Ok(Some("system:node:a".to_owned())));
        assert_eq!(name(true, 101), Ok(None), "the token decides");
        assert_eq!(name(false, 101).unwrap_err().reason, Reason::Unauthorized);
        assert!(certified(None, false, 101).is_ok_and(|user| user.is_none()));
    }
}
