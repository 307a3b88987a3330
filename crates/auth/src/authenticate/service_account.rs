//! Service account tokens: made here, and checked against the objects they are bound to.

mod legacy;

use std::collections::HashMap;
use std::sync::Arc;

use api::Resource;
use api::kinds::{node::NODE, pod::POD, secret::SECRET, service_account::SERVICE_ACCOUNT};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use super::jwt::{self, Claims, Parsed, Reference};
use super::keys::{KeyError, PublicKey, SigningKey};
use super::{Identity, Objects, Refused};
use crate::User;

/// How many verified tokens are remembered, so that a signature is checked once and not per request.
const REMEMBERED_TOKENS: usize = 4096;
/// Clocks may differ, and a deletion may have just begun: seconds for which both are overlooked.
const LEEWAY_SECONDS: i64 = 60;

/// Makes and checks tokens.
pub struct ServiceAccounts {
    /// The first issuer is put into new tokens; the others are accepted as well.
    issuers: Vec<String>,
    /// The audiences of the API server itself.
    audiences: Vec<String>,
    signing: Option<SigningKey>,
    keys: Vec<PublicKey>,
    verified: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

/// What a new token says.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenSpec<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// Empty means the API server's own audiences.
    pub audiences: &'a [String],
    pub expiration_seconds: i64,
    pub pod: Option<Bound<'a>>,
    pub secret: Option<Bound<'a>>,
    /// The node of the pod, or the node that the token itself is bound to.
    pub node: Option<Bound<'a>>,
    /// Seconds after which a token that lives longer than was asked for should have been replaced.
    pub warn_after_seconds: Option<i64>,
}

/// An object whose end is the token's end.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    pub name: &'a str,
    pub uid: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    pub token: String,
    /// In seconds since the epoch.
    pub expires_at: i64,
    /// The token's own id, for audit.
    pub id: String,
}

impl ServiceAccounts {
    /// `keys` verify tokens in addition to the public half of `signing`. Without audiences the first issuer is the API
    /// server's audience.
    pub fn new(
        issuers: Vec<String>,
        audiences: Vec<String>,
        signing: Option<SigningKey>,
        mut keys: Vec<PublicKey>,
    ) -> ServiceAccounts {
        if let Some(signing) = &signing
            && !keys.iter().any(|key| key.id == signing.public().id)
        {
            keys.insert(0, signing.public().clone());
        }
        let audiences = if audiences.is_empty() {
            issuers.iter().take(1).cloned().collect()
        } else {
            audiences
        };
        ServiceAccounts {
            issuers,
            audiences,
            signing,
            keys,
            verified: Mutex::default(),
        }
    }

    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Makes a token; `now` is in seconds since the epoch.
    pub fn issue_token(&self, spec: &TokenSpec, now: i64) -> Result<IssuedToken, KeyError> {
        let key = self.signing.as_ref().ok_or(KeyError::NoKey)?;
        let audiences = if spec.audiences.is_empty() {
            &self.audiences
        } else {
            spec.audiences
        };
        let id = random_id()?;
        let expires_at = now + spec.expiration_seconds;
        let mut bound = json!({
            "namespace": spec.namespace,
            "serviceaccount": {"name": spec.name, "uid": spec.uid},
        });
        for (field, object) in [("pod", spec.pod), ("secret", spec.secret), ("node", spec.node)] {
            if let Some(object) = object {
                bound[field] = json!({"name": object.name, "uid": object.uid});
            }
        }
        if let Some(seconds) = spec.warn_after_seconds {
            bound["warnafter"] = (now + seconds).into();
        }
        let claims = json!({
            "iss": self.issuers.first(),
            "sub": crate::user::service_account_name(spec.namespace, spec.name),
            "aud": audiences,
            "iat": now, "nbf": now, "exp": expires_at, "jti": id,
            "kubernetes.io": bound,
        });
        Ok(IssuedToken {
            token: jwt::sign(key, &claims)?,
            expires_at,
            id,
        })
    }

    /// Makes the token that a Secret of an account holds. It does not expire, and ends with the Secret or the account.
    pub fn issue_secret_token(&self, namespace: &str, name: &str, uid: &str, secret: &str) -> Result<String, KeyError> {
        let key = self.signing.as_ref().ok_or(KeyError::NoKey)?;
        let account = Reference {
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        legacy::sign(key, namespace, &account, secret)
    }

    /// The user of a token and the audiences it is valid for.
    pub fn authenticate(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        objects: &dyn Objects,
        now: i64,
    ) -> Result<(Arc<User>, Vec<String>), Refused> {
        let claims = self.verify(token)?;
        let refused = |why: String| Refused::ServiceAccountToken(why);
        let wanted = audiences.unwrap_or(&self.audiences);
        // A token without audiences is from before there were any, and means the API server.
        let held = if claims.aud.is_empty() {
            &self.audiences
        } else {
            &claims.aud
        };
        let valid: Vec<String> = wanted
            .iter()
            .filter(|audience| held.contains(audience))
            .cloned()
            .collect();
        if valid.is_empty() {
            return Err(refused(format!("it is meant for {held:?}, not for {wanted:?}")));
        }
        check_times(&claims, now).map_err(refused)?;
        if legacy::is_legacy(&claims) {
            let user = legacy::user(token, &claims, objects, now).map_err(refused)?;
            return Ok((user, valid));
        }
        check_objects(&claims, objects, now).map_err(refused)?;
        Ok((Arc::new(user(&claims)), valid))
    }

    /// The document that says where the keys are.
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<&str> = self.keys.iter().map(|key| key.algorithm.name()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({
            "issuer": self.issuers.first(),
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// The keys by which others verify tokens.
    pub fn jwks(&self) -> Value {
        json!({"keys": self.keys.iter().map(PublicKey::to_jwk).collect::<Vec<_>>()})
    }

    /// The claims of a token with a good signature of an issuer we trust. Nothing that changes with time is remembered.
    fn verify(&self, token: &str) -> Result<Arc<Claims>, Refused> {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(claims) = self.verified.lock().get(&key) {
            return Ok(claims.clone());
        }
        let parsed = Parsed::new(token).ok_or(Refused::UnknownToken)?;
        if !legacy::is_legacy(&parsed.claims) && !self.issuers.contains(&parsed.claims.iss) {
            return Err(Refused::UnknownToken);
        }
        if !parsed.is_signed_by(&self.keys) {
            return Err(Refused::ServiceAccountToken("no key verifies its signature".to_owned()));
        }
        let claims = Arc::new(parsed.claims);
        let mut verified = self.verified.lock();
        if verified.len() >= REMEMBERED_TOKENS {
            verified.clear();
        }
        verified.insert(key, claims.clone());
        Ok(claims)
    }
}

fn check_times(claims: &Claims, now: i64) -> Result<(), String> {
    if claims.exp.is_some_and(|expiry| now - LEEWAY_SECONDS > expiry) {
        return Err("it has expired".to_owned());
    }
    if claims.nbf.is_some_and(|start| now + LEEWAY_SECONDS < start) {
        return Err("it is not valid yet".to_owned());
    }
    if claims.iat.is_some_and(|issued| now + LEEWAY_SECONDS < issued) {
        return Err("it is issued in the future".to_owned());
    }
    Ok(())
}

fn check_objects(claims: &Claims, objects: &dyn Objects, now: i64) -> Result<(), String> {
    let bound = &claims.kubernetes;
    let check = |resource: &'static Resource, reference: &Reference| {
        let namespace = if resource.namespaced {
            bound.namespace.as_str()
        } else {
            ""
        };
        let found = objects.identity(resource, namespace, &reference.name);
        check_identity(resource, reference, found, now)
    };
    check(&SERVICE_ACCOUNT, &bound.serviceaccount)?;
    if let Some(secret) = &bound.secret {
        check(&SECRET, secret)?;
    }
    match (&bound.pod, &bound.node) {
        // The node of a pod's token is information, not a bond.
        (Some(pod), _) => check(&POD, pod),
        (None, Some(node)) => check(&NODE, node),
        (None, None) => Ok(()),
    }
}

fn check_identity(resource: &Resource, reference: &Reference, found: Option<Identity>, now: i64) -> Result<(), String> {
    let of = format!("{} {:?}", resource.singular, reference.name);
    match found {
        None => Err(format!("its {of} is gone")),
        Some(identity) if identity.uid != reference.uid => Err(format!("its {of} is not the one it was made for")),
        Some(identity)
            if identity
                .deleted_at
                .is_some_and(|deleted| deleted < now - LEEWAY_SECONDS) =>
        {
            Err(format!("its {of} has been deleted"))
        }
        Some(_) => Ok(()),
    }
}

fn user(claims: &Claims) -> User {
    let bound = &claims.kubernetes;
    let account = &bound.serviceaccount;
    let mut user = User::service_account(&bound.namespace, &account.name, &account.uid);
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra
                .insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    if !claims.jti.is_empty() {
        add("credential-id", &format!("JTI={}", claims.jti));
    }
    if let Some(pod) = &bound.pod {
        add("pod-name", &pod.name);
        add("pod-uid", &pod.uid);
    }
    if let Some(node) = &bound.node {
        add("node-name", &node.name);
        add("node-uid", &node.uid);
    }
    user.authenticated()
}

/// A random UUID.
fn random_id() -> Result<String, KeyError> {
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Random)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

#[cfg(test)]
mod tests;
