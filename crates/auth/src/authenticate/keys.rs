//! Keys that sign and verify service account tokens: P-256 (ES256) and RSA (RS256).

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use x509_parser::der_parser::asn1_rs::{Any, FromDer, Integer, Sequence};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;
use x509_parser::x509::SubjectPublicKeyInfo;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the file holds no PEM block with a key")]
    NoKey,
    #[error("cannot read PEM block {0:?} as a P-256 or RSA key of at least 2048 bits")]
    Unreadable(String),
    #[error("cannot generate random numbers")]
    Random,
    #[error("signing failed")]
    Signing,
}

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Es256,
    Rs256,
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Rs256 => "RS256",
        }
    }
}

/// A key that verifies tokens.
#[derive(Clone, Debug)]
pub struct PublicKey {
    /// The hash of the key in its standard encoding, as upstream makes it, so that either server knows the other's keys.
    pub id: String,
    pub algorithm: Algorithm,
    /// The curve point, or the two numbers of an RSA key in PKCS#1 form.
    bytes: Vec<u8>,
}

/// A key that signs tokens.
pub struct SigningKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

const P256_POINT_BYTES: usize = 65;
/// The standard encoding of a P-256 key up to its point.
const P256_SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const RSA_ALGORITHM: [u8; 15] = [
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// The PKCS#8 wrapping of a P-256 key: version and algorithm.
const P256_PKCS8_HEAD: [u8; 24] = [
    0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x03, 0x01, 0x07,
];

impl SigningKey {
    /// A new P-256 key and its PEM text to keep.
    pub fn generate() -> Result<(SigningKey, String), KeyError> {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(|_| KeyError::Random)?;
        let pem = pem("PRIVATE KEY", document.as_ref());
        Ok((SigningKey::from_pem(&pem)?, pem))
    }

    /// Reads a private key: PKCS#8, the EC form of openssl, or PKCS#1 as kubeadm writes it.
    pub fn from_pem(text: &str) -> Result<SigningKey, KeyError> {
        for block in Pem::iter_from_buffer(text.as_bytes()).flatten() {
            let pair = match block.label.as_str() {
                "PRIVATE KEY" => ecdsa(&block.contents).or_else(|| {
                    let key = RsaKeyPair::from_pkcs8(&block.contents).ok()?;
                    Some(Pair::Rsa(Box::new(key)))
                }),
                "EC PRIVATE KEY" => ecdsa(&wrap_sec1(&block.contents)),
                "RSA PRIVATE KEY" => RsaKeyPair::from_der(&block.contents)
                    .ok()
                    .map(|key| Pair::Rsa(Box::new(key))),
                _ => continue,
            };
            let pair = pair.ok_or_else(|| KeyError::Unreadable(block.label.clone()))?;
            let public = pair.public();
            return Ok(SigningKey { pair, public });
        }
        Err(KeyError::NoKey)
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ecdsa(pair) => {
                let signature = pair.sign(&random, message).map_err(|_| KeyError::Signing)?;
                Ok(signature.as_ref().to_vec())
            }
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(|_| KeyError::Signing)?;
                Ok(signature)
            }
        }
    }
}

/// A private key as PKCS#8, which is the one form that all libraries read, if it is an RSA key in the form of PKCS#1 or a
/// P-256 key in openssl's own form. Others are left as they are.
pub fn to_pkcs8(text: &str) -> String {
    let mut blocks = Pem::iter_from_buffer(text.as_bytes()).flatten();
    let wrapped = blocks.find_map(|block| match block.label.as_str() {
        "RSA PRIVATE KEY" => Some(wrap_pkcs1(&block.contents)),
        "EC PRIVATE KEY" => Some(wrap_sec1(&block.contents)).filter(|key| ecdsa(key).is_some()),
        _ => None,
    });
    wrapped.map_or_else(|| text.to_owned(), |key| pem("PRIVATE KEY", &key))
}

impl Pair {
    fn public(&self) -> PublicKey {
        match self {
            Pair::Ecdsa(pair) => PublicKey::new(Algorithm::Es256, pair.public_key().as_ref().to_vec()),
            Pair::Rsa(pair) => PublicKey::new(Algorithm::Rs256, pair.public_key().as_ref().to_vec()),
        }
    }
}

impl PublicKey {
    fn new(algorithm: Algorithm, bytes: Vec<u8>) -> PublicKey {
        let standard = match algorithm {
            Algorithm::Es256 => [P256_SPKI_PREFIX.as_slice(), &bytes].concat(),
            Algorithm::Rs256 => {
                let bits = der(0x03, &[&[0], bytes.as_slice()].concat());
                der(0x30, &[RSA_ALGORITHM.as_slice(), &bits].concat())
            }
        };
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &standard));
        PublicKey { id, algorithm, bytes }
    }

    /// Every key of a PEM file: public keys, certificates, and the public halves of private keys.
    pub fn from_pem(text: &str) -> Result<Vec<PublicKey>, KeyError> {
        let mut keys = Vec::new();
        for block in Pem::iter_from_buffer(text.as_bytes()).flatten() {
            let key = match block.label.as_str() {
                "PUBLIC KEY" => SubjectPublicKeyInfo::from_der(&block.contents)
                    .ok()
                    .and_then(|(_, info)| PublicKey::from_info(&info)),
                "RSA PUBLIC KEY" => Some(PublicKey::new(Algorithm::Rs256, block.contents.clone())),
                "CERTIFICATE" => X509Certificate::from_der(&block.contents)
                    .ok()
                    .and_then(|(_, certificate)| PublicKey::from_info(certificate.public_key())),
                label if label.ends_with("PRIVATE KEY") => {
                    let pem = pem(label, &block.contents);
                    Some(SigningKey::from_pem(&pem)?.public)
                }
                _ => continue,
            };
            keys.push(key.ok_or_else(|| KeyError::Unreadable(block.label.clone()))?);
        }
        if keys.is_empty() {
            Err(KeyError::NoKey)
        } else {
            Ok(keys)
        }
    }

    fn from_info(info: &SubjectPublicKeyInfo) -> Option<PublicKey> {
        let bytes = info.subject_public_key.data.to_vec();
        if info.raw.starts_with(&P256_SPKI_PREFIX) && bytes.len() == P256_POINT_BYTES {
            return Some(PublicKey::new(Algorithm::Es256, bytes));
        }
        rsa_numbers(&bytes)?;
        Some(PublicKey::new(Algorithm::Rs256, bytes))
    }

    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self.algorithm {
            Algorithm::Es256 => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.bytes).verify(message, signature)
            }
            Algorithm::Rs256 => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.bytes).verify(message, signature)
            }
        };
        verified.is_ok()
    }

    /// The key as others fetch it to verify tokens themselves.
    pub fn to_jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self.algorithm {
            Algorithm::Es256 => json!({
                "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
                "x": encode(&self.bytes[1..33]), "y": encode(&self.bytes[33..]),
            }),
            Algorithm::Rs256 => {
                let (modulus, exponent) = rsa_numbers(&self.bytes).unwrap_or_default();
                json!({
                    "use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256",
                    "n": encode(&modulus), "e": encode(&exponent),
                })
            }
        }
    }
}

fn ecdsa(pkcs8: &[u8]) -> Option<Pair> {
    let random = SystemRandom::new();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
        .ok()
        .map(|key| Pair::Ecdsa(Box::new(key)))
}

fn wrap_sec1(sec1: &[u8]) -> Vec<u8> {
    let key = der(0x04, sec1);
    der(0x30, &[P256_PKCS8_HEAD.as_slice(), &key].concat())
}

fn wrap_pkcs1(pkcs1: &[u8]) -> Vec<u8> {
    let version = [0x02, 0x01, 0x00];
    let key = der(0x04, pkcs1);
    der(0x30, &[version.as_slice(), &RSA_ALGORITHM, &key].concat())
}

/// Modulus and exponent of an RSA key in PKCS#1 form.
fn rsa_numbers(pkcs1: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, sequence) = Sequence::from_der(pkcs1).ok()?;
    let (rest, modulus) = Any::from_der(&sequence.content).ok()?;
    let (_, exponent) = Any::from_der(rest).ok()?;
    let number = |any: Any| {
        let integer = Integer::try_from(any).ok()?;
        let bytes = integer.as_ref();
        Some(bytes[bytes.iter().position(|byte| *byte != 0)?..].to_vec())
    };
    Some((number(modulus)?, number(exponent)?))
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut encoded = vec![tag];
    if length < 0x80 {
        encoded.push(length as u8);
    } else {
        let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        encoded.push(0x80 | bytes.len() as u8);
        encoded.extend(bytes);
    }
    encoded.extend_from_slice(content);
    encoded
}

fn pem(label: &str, contents: &[u8]) -> String {
    let body = STANDARD.encode(contents);
    let lines: Vec<&str> = body
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
