//! Compact JSON web tokens: `header.claims.signature`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::keys::{KeyError, PublicKey, SigningKey};

/// What a service account token says, in the layout upstream gave it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claims {
    pub iss: String,
    pub sub: String,
    #[serde(deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    pub exp: Option<i64>,
    pub nbf: Option<i64>,
    pub iat: Option<i64>,
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Kubernetes,
    /// What tokens say that are kept in Secrets.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub legacy_namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub legacy_secret_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub legacy_account_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub legacy_account_uid: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Kubernetes {
    pub namespace: String,
    pub serviceaccount: Reference,
    pub pod: Option<Reference>,
    pub secret: Option<Reference>,
    pub node: Option<Reference>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Reference {
    pub name: String,
    pub uid: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

/// A token taken apart but not verified.
pub struct Parsed<'a> {
    header: Header,
    signed: &'a str,
    signature: Vec<u8>,
    pub claims: Claims,
}

impl<'a> Parsed<'a> {
    /// `None` for anything that is not a token of this form.
    pub fn new(token: &'a str) -> Option<Parsed<'a>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        Some(Parsed {
            header: serde_json::from_slice(&decode(header)?).ok()?,
            claims: serde_json::from_slice(&decode(claims)?).ok()?,
            signature: decode(signature)?,
            signed,
        })
    }

    /// Whether one of the keys made the signature. A key only verifies its own algorithm, whatever the header says.
    pub fn is_signed_by(&self, keys: &[PublicKey]) -> bool {
        let named = keys.iter().any(|key| key.id == self.header.kid);
        keys.iter()
            .filter(|key| !named || key.id == self.header.kid)
            .filter(|key| key.algorithm.name() == self.header.alg)
            .any(|key| key.verifies(self.signed.as_bytes(), &self.signature))
    }
}

pub fn sign(key: &SigningKey, claims: &Value) -> Result<String, KeyError> {
    let header = json!({"alg": key.public().algorithm.name(), "kid": key.public().id});
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let signature = key.sign(signed.as_bytes())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// An audience may stand alone.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}
