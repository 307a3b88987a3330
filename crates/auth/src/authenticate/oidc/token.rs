//! A token taken apart, and the checks of OpenID Connect: signature, issuer, audience, times.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::compile::JwtAuthenticator;
use super::key_set::{Algorithm, KeySet};
use crate::User;

/// The longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 64 * 1024;
/// Clocks may differ: how long before its time a token is taken. The end of a token is the end, as it is upstream.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 5 * 60;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The issuer may have new keys.
    #[error("oidc: verify token: failed to verify signature: failed to verify id token signature")]
    Signature,
    #[error("oidc: {0}")]
    Refused(String),
}

/// A token that claims to be of an issuer. Nothing in it is to be believed before [`JwtAuthenticator::verify`].
pub struct UnverifiedToken<'a> {
    header: Header,
    signed: &'a str,
    signature: Vec<u8>,
    claims: Map<String, Value>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that a reader must understand to read the token. None are understood.
    crit: Option<Value>,
}

impl<'a> UnverifiedToken<'a> {
    /// `None` for anything that is not a compact signed JSON web token.
    pub fn parse(token: &'a str) -> Option<UnverifiedToken<'a>> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        Some(UnverifiedToken {
            header: serde_json::from_slice(&decode(header)?).ok()?,
            claims: serde_json::from_slice(&decode(claims)?).ok()?,
            signature: decode(signature)?,
            signed,
        })
    }

    pub fn issuer(&self) -> &str {
        self.claims.get("iss").and_then(Value::as_str).unwrap_or_default()
    }
}

impl JwtAuthenticator {
    /// The user of a token that names this issuer. `now` is in seconds since the epoch.
    pub fn verify(&self, token: &UnverifiedToken<'_>, keys: &KeySet, now: i64) -> Result<User, TokenError> {
        let refused = |why: String| TokenError::Refused(format!("verify token: {why}"));
        let algorithm = self.algorithm(&token.header).map_err(refused)?;
        if token.issuer() != self.issuer_url() {
            let (expected, got) = (self.issuer_url(), token.issuer());
            let why = format!("oidc: id token issued by a different provider, expected {expected:?} got {got:?}");
            return Err(refused(why));
        }
        check_times(&token.claims, now).map_err(refused)?;
        if !keys.verifies(&token.header.kid, algorithm, token.signed.as_bytes(), &token.signature) {
            return Err(TokenError::Signature);
        }
        self.check_audience(&token.claims).map_err(TokenError::Refused)?;
        self.user(&token.claims).map_err(TokenError::Refused)
    }

    fn algorithm(&self, header: &Header) -> Result<Algorithm, String> {
        if header.crit.is_some() {
            return Err("oidc: malformed jwt: go-jose/go-jose: unsupported crit header".to_owned());
        }
        let allowed = self.algorithms();
        let algorithm = Algorithm::named(&header.alg).filter(|algorithm| allowed.contains(algorithm));
        algorithm.ok_or_else(|| {
            let names: Vec<String> = allowed
                .iter()
                .map(|algorithm| format!("{:?}", algorithm.name()))
                .collect();
            format!(
                "oidc: malformed jwt: unexpected signature algorithm {:?}; expected [{}]",
                header.alg,
                names.join(" ")
            )
        })
    }

    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), String> {
        let held: Vec<&str> = match claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        match held
            .iter()
            .any(|audience| self.audiences().iter().any(|own| own == audience))
        {
            true => Ok(()),
            false => Err(format!("expected audience in {:?} got {held:?}", self.audiences())),
        }
    }
}

fn check_times(claims: &Map<String, Value>, now: i64) -> Result<(), String> {
    // A token without an end would be good for ever.
    let expiry = seconds(claims, "exp")?.unwrap_or(0);
    if expiry <= now {
        return Err(format!("oidc: token is expired (Token Expiry: {expiry})"));
    }
    if let Some(start) = seconds(claims, "nbf")?.filter(|start| now + NOT_BEFORE_LEEWAY_SECONDS < *start) {
        return Err(format!(
            "oidc: current time {now} before the nbf (not before) time: {start}"
        ));
    }
    if let Some(issued) = seconds(claims, "iat")?.filter(|issued| now + NOT_BEFORE_LEEWAY_SECONDS < *issued) {
        return Err(format!(
            "oidc: current time {now} before the iat (issued at) time: {issued}"
        ));
    }
    Ok(())
}

/// A time in seconds since the epoch; issuers also write fractions.
fn seconds(claims: &Map<String, Value>, claim: &str) -> Result<Option<i64>, String> {
    match claims.get(claim) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => {
            let fraction = number.as_f64().filter(|fraction| fraction.abs() < i64::MAX as f64);
            let whole = number.as_i64().or(fraction.map(|fraction| fraction as i64));
            whole
                .map(Some)
                .ok_or_else(|| format!("oidc: failed to unmarshal claims: {claim} is out of range"))
        }
        Some(_) => Err(format!("oidc: failed to unmarshal claims: {claim} is not a number")),
    }
}
