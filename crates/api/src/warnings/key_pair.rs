//! Whether a certificate and a key fit each other. What does not is told in the words of Go's TLS library, which
//! upstream's warnings are.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};

use super::der::{CONTEXT, Der, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const X25519: &[u8] = &[0x2b, 0x65, 0x6e];

const P224: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x21];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

const NULL: &[u8] = &[0x05, 0x00];

const NO_FIT: &str = "tls: private key does not match public key";
const NO_KEY: &str = "tls: failed to parse private key";

enum Public<'a> {
    Rsa(Modulus<'a>),
    Ec { curve: &'a [u8], point: &'a [u8] },
    Ed25519(&'a [u8]),
    Other,
}

enum Private<'a> {
    Rsa(Modulus<'a>),
    Ec(EcKey<'a>),
    Ed25519(&'a [u8]),
}

#[derive(PartialEq)]
struct Modulus<'a> {
    modulus: &'a [u8],
    exponent: &'a [u8],
}

struct EcKey<'a> {
    curve: &'a [u8],
    scalar: &'a [u8],
    point: Option<&'a [u8]>,
}

struct Block {
    label: String,
    content: Vec<u8>,
}

/// Why the first certificate of one text and the first key of the other cannot be used together.
pub fn problem(certificates: &[u8], keys: &[u8]) -> Option<String> {
    check(certificates, keys).err()
}

fn check(certificates: &[u8], keys: &[u8]) -> Result<(), String> {
    let certificate = first_certificate(certificates)?;
    let key = first_key(keys)?;
    let public = public_key(&certificate)?;
    let private = private_key(&key)?;
    let fits = match (public, private) {
        (Public::Rsa(public), Private::Rsa(private)) => public == private,
        (Public::Ec { curve, point }, Private::Ec(private)) => private.curve == curve && private.belongs_to(point),
        (Public::Ed25519(public), Private::Ed25519(seed)) => {
            Ed25519KeyPair::from_seed_unchecked(seed).is_ok_and(|pair| pair.public_key().as_ref() == public)
        }
        (Public::Other, _) => return Err("tls: unknown public key algorithm".to_owned()),
        _ => return Err("tls: private key type does not match public key type".to_owned()),
    };
    if fits { Ok(()) } else { Err(NO_FIT.to_owned()) }
}

fn first_certificate(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut skipped = Vec::new();
    for block in blocks(text) {
        if block.label == "CERTIFICATE" {
            return Ok(block.content);
        }
        skipped.push(block.label);
    }
    Err(match skipped.as_slice() {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [only] if only.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
             have been switched"
                .to_owned()
        }
        _ => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: [{}]",
            skipped.join(" ")
        ),
    })
}

fn first_key(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut skipped = Vec::new();
    for block in blocks(text) {
        if block.label == "PRIVATE KEY" || block.label.ends_with(" PRIVATE KEY") {
            return Ok(block.content);
        }
        skipped.push(block.label);
    }
    Err(match skipped.as_slice() {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [only] if only == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        _ => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of \
             the following types: [{}]",
            skipped.join(" ")
        ),
    })
}

/// The PEM blocks of a text; what is not written as one is passed over.
fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut found = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines().map(str::trim_end) {
        let marked = |start| {
            line.strip_prefix(start)
                .and_then(|rest: &str| rest.strip_suffix("-----"))
        };
        if let Some(label) = marked("-----BEGIN ") {
            open = Some((label, String::new()));
        } else if let Some(label) = marked("-----END ") {
            let whole = open.take().filter(|(begun, _)| *begun == label);
            let content = whole.and_then(|(_, digits)| BASE64.decode(digits).ok());
            found.extend(content.map(|content| Block {
                label: label.to_owned(),
                content,
            }));
        } else if let Some((_, digits)) = &mut open {
            // A line with a colon is a header.
            let is_header = digits.is_empty() && line.contains(':');
            digits.extend(line.split_whitespace().filter(|_| !is_header));
        }
    }
    found
}

fn public_key(certificate: &[u8]) -> Result<Public<'_>, &'static str> {
    let mut outer = Der(certificate);
    let mut input = outer.read(SEQUENCE).ok_or("x509: malformed certificate")?;
    if !outer.is_empty() {
        return Err("x509: trailing data");
    }
    let mut tbs = input.read(SEQUENCE).ok_or("x509: malformed tbs certificate")?;
    tbs.read_optional(CONTEXT[0]).ok_or("x509: malformed version")?;
    let serial = tbs.read(INTEGER).ok_or("x509: malformed serial number")?;
    if serial.0.first().is_some_and(|first| *first >= 0x80) {
        return Err("x509: negative serial number");
    }
    for problem in [
        "x509: malformed signature algorithm identifier",
        "x509: malformed issuer",
        "x509: malformed validity",
        // As it is said of the subject, too.
        "x509: malformed issuer",
    ] {
        tbs.read(SEQUENCE).ok_or(problem)?;
    }
    let mut info = tbs.read(SEQUENCE).ok_or("x509: malformed spki")?;
    let mut algorithm = info
        .read(SEQUENCE)
        .ok_or("x509: malformed public key algorithm identifier")?;
    let name = algorithm
        .read(OBJECT_IDENTIFIER)
        .ok_or("x509: malformed OID in algorithm identifier")?;
    let bits = info.bits().ok_or("x509: malformed subjectPublicKey")?;
    match name.0 {
        RSA if algorithm.0 != NULL => Err("x509: RSA key missing NULL parameters"),
        RSA => {
            let mut key = Der(bits).read(SEQUENCE).ok_or("x509: invalid RSA public key")?;
            Ok(Public::Rsa(Modulus {
                modulus: key.unsigned().ok_or("x509: invalid RSA modulus")?,
                exponent: key.unsigned().ok_or("x509: invalid RSA public exponent")?,
            }))
        }
        EC => {
            let curve = algorithm
                .read(OBJECT_IDENTIFIER)
                .ok_or("x509: invalid ECDSA parameters")?
                .0;
            if ![P224, P256, P384, P521].contains(&curve) {
                return Err("x509: unsupported elliptic curve");
            }
            Ok(Public::Ec { curve, point: bits })
        }
        ED25519 if bits.len() != 32 => Err("x509: wrong Ed25519 public key size"),
        ED25519 => Ok(Public::Ed25519(bits)),
        _ => Ok(Public::Other),
    }
}

/// A key in any of the three forms that there are.
fn private_key(key: &[u8]) -> Result<Private<'_>, &'static str> {
    if let Some(modulus) = pkcs1(key) {
        return Ok(Private::Rsa(modulus));
    }
    if let Some(found) = pkcs8(key) {
        return found;
    }
    ec_key(key, None).map(Private::Ec).ok_or(NO_KEY)
}

fn pkcs1(key: &[u8]) -> Option<Modulus<'_>> {
    let mut fields = Der(key).read(SEQUENCE)?;
    let version = fields.unsigned()?;
    let modulus = fields.unsigned()?;
    let exponent = fields.unsigned()?;
    (version.is_empty() && !modulus.is_empty()).then_some(Modulus { modulus, exponent })
}

fn pkcs8(key: &[u8]) -> Option<Result<Private<'_>, &'static str>> {
    let mut fields = Der(key).read(SEQUENCE)?;
    fields.unsigned()?;
    let mut algorithm = fields.read(SEQUENCE)?;
    let name = algorithm.read(OBJECT_IDENTIFIER)?.0;
    let inner = fields.read(OCTET_STRING)?.0;
    let key = match name {
        RSA => Private::Rsa(pkcs1(inner)?),
        EC => {
            let curve = algorithm.read_optional(OBJECT_IDENTIFIER)??;
            Private::Ec(ec_key(inner, Some(curve.0))?)
        }
        ED25519 => Private::Ed25519(Der(inner).read(OCTET_STRING)?.0),
        X25519 => return Some(Err("tls: found unknown private key type in PKCS#8 wrapping")),
        _ => return None,
    };
    Some(Ok(key))
}

/// A key whose curve is named around it or in it.
fn ec_key<'a>(key: &'a [u8], around: Option<&'a [u8]>) -> Option<EcKey<'a>> {
    let mut fields = Der(key).read(SEQUENCE)?;
    if fields.unsigned()? != [1] {
        return None;
    }
    let scalar = fields.read(OCTET_STRING)?.0;
    let inside = match fields.read_optional(CONTEXT[0])? {
        Some(mut named) => Some(named.read(OBJECT_IDENTIFIER)?.0),
        None => None,
    };
    let point = match fields.read_optional(CONTEXT[1])? {
        Some(mut point) => Some(point.bits()?),
        None => None,
    };
    Some(EcKey {
        curve: around.or(inside)?,
        scalar,
        point,
    })
}

impl EcKey<'_> {
    /// Computed where we can; on the other curves the point that stands beside the key is believed.
    fn belongs_to(&self, public: &[u8]) -> bool {
        let (algorithm, bytes) = match self.curve {
            P256 => (&ECDSA_P256_SHA256_ASN1_SIGNING, 32_usize),
            P384 => (&ECDSA_P384_SHA384_ASN1_SIGNING, 48),
            _ => return self.point.is_none_or(|point| point == public),
        };
        let digits = &self.scalar[self.scalar.iter().take_while(|digit| **digit == 0).count()..];
        let Some(zeros) = bytes.checked_sub(digits.len()) else {
            return false;
        };
        let scalar = [&vec![0; zeros], digits].concat();
        EcdsaKeyPair::from_private_key_and_public_key(algorithm, &scalar, public, &SystemRandom::new()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm};

    use super::super::der::BIT_STRING;
    use super::*;

    fn pair(algorithm: &'static SignatureAlgorithm) -> (String, String) {
        let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
        let params = CertificateParams::new(vec!["example.com".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn told(certificate: &str, key: &str) -> String {
        problem(certificate.as_bytes(), key.as_bytes()).unwrap_or_default()
    }

    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        [&[tag, content.len() as u8][..], &content].concat()
    }

    fn pem(label: &str, content: &[u8]) -> String {
        format!(
            "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
            BASE64.encode(content)
        )
    }

    /// A certificate that says nothing but its key.
    fn certificate_of(algorithm: &[u8], bits: &[u8]) -> String {
        let nothing = element(SEQUENCE, &[]);
        let bits = element(BIT_STRING, &[&[0], bits]);
        let info = element(SEQUENCE, &[&element(SEQUENCE, &[algorithm]), &bits]);
        let tbs = element(
            SEQUENCE,
            &[
                &element(INTEGER, &[&[1]]),
                &nothing,
                &nothing,
                &nothing,
                &nothing,
                &info,
            ],
        );
        pem("CERTIFICATE", &element(SEQUENCE, &[&tbs]))
    }

    #[test]
    fn pairs_fit_and_others_do_not() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let (certificate, key) = pair(algorithm);
            assert_eq!(told(&certificate, &key), "");
            assert_eq!(told(&certificate, &pair(algorithm).1), NO_FIT);
        }
        let (certificate, _) = pair(&PKCS_ECDSA_P256_SHA256);
        assert_eq!(told(&certificate, &pair(&PKCS_ECDSA_P384_SHA384).1), NO_FIT);
        assert_eq!(
            told(&certificate, &pair(&PKCS_ED25519).1),
            "tls: private key type does not match public key type"
        );
    }

    #[test]
    fn rsa_keys_fit_by_their_modulus_in_both_forms() {
        let number = |value: u8| element(INTEGER, &[&[value]]);
        let public = element(SEQUENCE, &[&number(77), &number(3)]);
        let algorithm = [&element(OBJECT_IDENTIFIER, &[RSA])[..], NULL].concat();
        let certificate = certificate_of(&algorithm, &public);
        let private = |modulus| element(SEQUENCE, &[&number(0), &number(modulus), &number(3), &number(7)]);
        assert_eq!(told(&certificate, &pem("RSA PRIVATE KEY", &private(77))), "");
        assert_eq!(told(&certificate, &pem("RSA PRIVATE KEY", &private(78))), NO_FIT);
        let wrapped = element(
            SEQUENCE,
            &[
                &number(0),
                &element(SEQUENCE, &[&algorithm]),
                &element(OCTET_STRING, &[&private(77)]),
            ],
        );
        assert_eq!(told(&certificate, &pem("PRIVATE KEY", &wrapped)), "");
        let bare = certificate_of(&element(OBJECT_IDENTIFIER, &[RSA]), &public);
        assert_eq!(
            told(&bare, &pem("PRIVATE KEY", &wrapped)),
            "x509: RSA key missing NULL parameters"
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (certificate, key) = pair(&PKCS_ECDSA_P256_SHA256);
        let cases = [
            ("", "", "tls: failed to find any PEM data in certificate input"),
            (
                certificate.as_str(),
                "a",
                "tls: failed to find any PEM data in key input",
            ),
            (
                &key,
                &certificate,
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
                 may have been switched",
            ),
            (
                &certificate,
                &certificate,
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            (
                &pem("A", b"a").repeat(2),
                &key,
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [A A]",
            ),
            (&pem("CERTIFICATE", b"nothing"), &key, "x509: malformed certificate"),
            (&certificate, &pem("PRIVATE KEY", b"nothing"), NO_KEY),
        ];
        for (certificate, key, expected) in cases {
            assert_eq!(told(certificate, key), expected);
        }
    }
}
