//! The public keys of an issuer, as its JWKS document has them.
//!
//! A key verifies only the algorithms of its own kind. There is no algorithm with a shared secret, so that nobody can
//! sign with a public key, and none without a signature.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// The most keys of one issuer that are kept: each may be tried for a token without a key id.
const MAX_KEYS: usize = 100;

/// How an ID token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
}

#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    #[error("the key set is not valid JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("the key set has {0} keys, more than {MAX_KEYS}")]
    TooMany(usize),
}

/// The keys that an issuer signs with just now.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: String,
    /// The only algorithm that it is for, if the issuer says so.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Uncompressed points.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    keys: Vec<Jwk>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: String,
    kid: String,
    alg: Option<String>,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

impl Algorithm {
    pub const ALL: [Algorithm; 8] = [
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Es256,
        Algorithm::Es384,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
        }
    }

    /// `None` for every other name, `none` and `HS256` among them.
    pub fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl KeySet {
    /// Reads a JWKS document. Keys of kinds that verify no token here are left out.
    pub fn parse(document: &[u8]) -> Result<KeySet, KeySetError> {
        let document: Document = serde_json::from_slice(document)?;
        if document.keys.len() > MAX_KEYS {
            return Err(KeySetError::TooMany(document.keys.len()));
        }
        let keys = document.keys.into_iter().filter_map(Key::from_jwk).collect();
        Ok(KeySet { keys })
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a key with this id, or any key if the token names none, made the signature with this algorithm.
    pub fn verifies(&self, key_id: &str, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        self.keys
            .iter()
            .filter(|key| key_id.is_empty() || key.id == key_id)
            .filter(|key| key.algorithm.as_deref().is_none_or(|only| only == algorithm.name()))
            .any(|key| key.material.verifies(algorithm, message, signature))
    }
}

impl Key {
    fn from_jwk(jwk: Jwk) -> Option<Key> {
        if !jwk.usage.is_empty() && jwk.usage != "sig" {
            return None;
        }
        let material = match (jwk.kty.as_str(), jwk.crv.as_str()) {
            ("RSA", _) => Material::Rsa {
                modulus: number(&jwk.n)?,
                exponent: number(&jwk.e)?,
            },
            ("EC", "P-256") => Material::P256(point(&jwk.x, &jwk.y, 32)?),
            ("EC", "P-384") => Material::P384(point(&jwk.x, &jwk.y, 48)?),
            _ => return None,
        };
        Some(Key {
            id: jwk.kid,
            algorithm: jwk.alg.filter(|algorithm| !algorithm.is_empty()),
            material,
        })
    }
}

impl Material {
    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let rsa = |parameters: &RsaParameters| match self {
            Material::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents {
                    n: modulus.as_slice(),
                    e: exponent.as_slice(),
                };
                key.verify(parameters, message, signature).is_ok()
            }
            Material::P256(_) | Material::P384(_) => false,
        };
        let ecdsa = |curve: &'static EcdsaVerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(curve, point).verify(message, signature).is_ok()
        };
        match (algorithm, self) {
            (Algorithm::Rs256, _) => rsa(&RSA_PKCS1_2048_8192_SHA256),
            (Algorithm::Rs384, _) => rsa(&RSA_PKCS1_2048_8192_SHA384),
            (Algorithm::Rs512, _) => rsa(&RSA_PKCS1_2048_8192_SHA512),
            (Algorithm::Ps256, _) => rsa(&RSA_PSS_2048_8192_SHA256),
            (Algorithm::Ps384, _) => rsa(&RSA_PSS_2048_8192_SHA384),
            (Algorithm::Ps512, _) => rsa(&RSA_PSS_2048_8192_SHA512),
            (Algorithm::Es256, Material::P256(point)) => ecdsa(&ECDSA_P256_SHA256_FIXED, point),
            (Algorithm::Es384, Material::P384(point)) => ecdsa(&ECDSA_P384_SHA384_FIXED, point),
            (Algorithm::Es256 | Algorithm::Es384, _) => false,
        }
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

/// A number without the zeros before it, which some issuers write.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = decode(text)?;
    let start = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[start..].to_vec())
}

fn point(x: &str, y: &str, coordinate_bytes: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![4];
    for coordinate in [x, y] {
        let coordinate = decode(coordinate)?;
        if coordinate.len() > coordinate_bytes {
            return None;
        }
        bytes.resize(bytes.len() + coordinate_bytes - coordinate.len(), 0);
        bytes.extend(coordinate);
    }
    Some(bytes)
}
