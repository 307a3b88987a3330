//! Bootstrap tokens: `ID.SECRET`, kept as a Secret of `kube-system` in kubeadm's form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use api::kinds::secret::SECRET;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use client::when::Moment;
use client::{DeleteOptions, List, ListOptions};
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::cluster_info::NODE_TOKENS;
use crate::component;
use crate::layout::{Layout, read};
use crate::{say, tls};

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const NAME_PREFIX: &str = "bootstrap-token-";
const ID_CHARS: usize = 6;
const SECRET_CHARS: usize = 16;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    pub id: String,
    secret: String,
}

impl BootstrapToken {
    fn random() -> Result<BootstrapToken> {
        Ok(BootstrapToken {
            id: random_text(ID_CHARS)?,
            secret: random_text(SECRET_CHARS)?,
        })
    }

    /// As it is shown to the server.
    pub fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// Whether a detached JWS says that somebody who knows this token has signed the content. No other algorithm than the
    /// one that signers use is taken, and no other token's.
    pub fn has_signed(&self, content: &str, signature: &str) -> bool {
        let mut parts = signature.split('.');
        let (Some(header), Some(""), Some(mac), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        let decoded = URL_SAFE_NO_PAD.decode(header).ok();
        let fields: Option<Value> = decoded.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_expected = fields.is_some_and(|fields| fields["alg"] == "HS256" && fields["kid"] == self.id);
        let Some(mac) = URL_SAFE_NO_PAD.decode(mac).ok().filter(|_| is_expected) else {
            return false;
        };
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        hmac::verify(&key, signed.as_bytes(), &mac).is_ok()
    }
}

impl FromStr for BootstrapToken {
    type Err = String;

    fn from_str(text: &str) -> Result<BootstrapToken, String> {
        let sound =
            |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| ALPHABET.contains(&byte));
        match text.split_once('.') {
            Some((id, secret)) if sound(id, ID_CHARS) && sound(secret, SECRET_CHARS) => Ok(BootstrapToken {
                id: id.to_owned(),
                secret: secret.to_owned(),
            }),
            _ => Err("not a bootstrap token; the format is [a-z0-9]{6}.[a-z0-9]{16}".to_owned()),
        }
    }
}

/// Secrets are not for logs.
impl fmt::Debug for BootstrapToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.…", self.id)
    }
}

/// What an authority is known by: the checksum of its public key, as kubeadm writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityHash(String);

impl AuthorityHash {
    /// That of the first certificate.
    fn of(pem: &str) -> Result<AuthorityHash> {
        let first = tls::certificates(pem)?
            .into_iter()
            .next()
            .context("the file contains no certificate")?;
        AuthorityHash::of_certificate(&first)
    }

    fn of_certificate(der: &[u8]) -> Result<AuthorityHash> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der)
            .ok()
            .context("the file contains an invalid certificate")?;
        let hash = digest(&SHA256, certificate.public_key().raw);
        let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(AuthorityHash(format!("sha256:{hex}")))
    }

    /// The certificates of a bundle that are this authority's. One that merely stands beside it is nobody's word.
    pub fn select(&self, pem: &str) -> Result<Vec<Vec<u8>>> {
        let all = tls::certificates(pem)?.into_iter();
        let own = all.filter(|certificate| AuthorityHash::of_certificate(certificate).is_ok_and(|hash| hash == *self));
        Ok(own.map(|certificate| certificate.to_vec()).collect())
    }
}

impl fmt::Display for AuthorityHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for AuthorityHash {
    type Err = String;

    fn from_str(text: &str) -> Result<AuthorityHash, String> {
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        match hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(AuthorityHash(text.to_ascii_lowercase())),
            false => Err("not a CA hash; the format is sha256: followed by 64 hexadecimal digits".to_owned()),
        }
    }
}

pub async fn create(layout: &Layout, server: &str, ttl: Duration, description: &str, as_json: bool) -> Result<()> {
    let client = component::connect(&layout.kubeconfig())?;
    super::grant(&client)
        .await
        .context("failed to create the RBAC rules of nodes")?;
    let token = BootstrapToken::random()?;
    let expires = (!ttl.is_zero()).then(|| Moment::now().plus(ttl).to_time());
    let secrets = client.resource(&SECRET).in_namespace(NAMESPACE);
    let object = secret(&token, expires.as_deref(), description);
    secrets
        .create::<IgnoredAny>(&object)
        .await
        .context("failed to create the token's Secret")?;
    let hash = AuthorityHash::of(&read(&layout.pki().join("ca.crt"))?)?;
    let command = format!("karve join {server} --token {} --ca-hash {hash}", token.text());
    match as_json {
        true => {
            let told = json!({
                "token": token.text(), "caHash": hash.to_string(), "server": server, "expires": expires,
                "command": command,
            });
            say::result(format_args!("{told:#}"))?;
        }
        false => {
            let end = expires.unwrap_or_else(|| "never".to_owned());
            say::result(format_args!("token    {}", token.text()))?;
            say::result(format_args!("ca-hash  {hash}"))?;
            say::result(format_args!("expires  {end}"))?;
            say::result(format_args!("join     {command}"))?;
        }
    }
    Ok(())
}

fn secret(token: &BootstrapToken, expires: Option<&str>, description: &str) -> Value {
    let mut data = json!({
        "token-id": token.id,
        "token-secret": token.secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": NODE_TOKENS,
    });
    if let Some(expires) = expires {
        data["expiration"] = expires.into();
    }
    if !description.is_empty() {
        data["description"] = description.into();
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {"name": format!("{NAME_PREFIX}{}", token.id), "namespace": NAMESPACE},
        "stringData": data,
    })
}

pub async fn list(layout: &Layout, as_json: bool) -> Result<()> {
    let client = component::connect(&layout.kubeconfig())?;
    let only = ListOptions {
        field_selector: format!("type={TYPE}"),
        ..ListOptions::default()
    };
    let secrets = client.resource(&SECRET).in_namespace(NAMESPACE);
    let found: List<Value> = secrets.list(&only).await.context("failed to list the tokens")?;
    let rows: Vec<Value> = found.items.iter().map(row).collect();
    match as_json {
        true => say::result(format_args!("{:#}", json!(rows)))?,
        false => {
            say::result(format_args!("{:<8}{:<24}{:<26}DESCRIPTION", "ID", "EXPIRES", "USAGES"))?;
            for row in &rows {
                let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
                let (id, expires, usages, description) =
                    (text("id"), text("expires"), text("usages"), text("description"));
                let line = format!("{id:<8}{expires:<24}{usages:<26}{description}");
                say::result(line.trim_end())?;
            }
        }
    }
    Ok(())
}

/// What may be told of a token.
fn row(secret: &Value) -> Value {
    let text = |key: &str| {
        let bytes = STANDARD
            .decode(secret["data"][key].as_str().unwrap_or_default())
            .unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let expires = match text("expiration") {
        end if end.is_empty() => "never".to_owned(),
        end => end,
    };
    let usages = ["authentication", "signing"].into_iter();
    let usages = usages.filter(|usage| text(&format!("usage-bootstrap-{usage}")) == "true");
    json!({
        "id": text("token-id"), "expires": expires, "description": text("description"),
        "usages": usages.collect::<Vec<_>>().join(","),
    })
}

pub async fn delete(layout: &Layout, tokens: &[String]) -> Result<()> {
    let client = component::connect(&layout.kubeconfig())?;
    let secrets = client.resource(&SECRET).in_namespace(NAMESPACE);
    for text in tokens {
        let id = text.split('.').next().unwrap_or_default();
        ensure!(
            id.len() == ID_CHARS && id.bytes().all(|byte| ALPHABET.contains(&byte)),
            "{id:?} is neither a bootstrap token nor the first part of one"
        );
        match secrets
            .delete(&format!("{NAME_PREFIX}{id}"), &DeleteOptions::default())
            .await
        {
            Ok(_) => say::result(format_args!("token {id} deleted"))?,
            Err(error) if error.is_not_found() => bail!("token {id} not found; see `karve token list`"),
            Err(error) => return Err(error).with_context(|| format!("failed to delete token {id}")),
        }
    }
    Ok(())
}

/// Every text is as likely as any other: bytes that would make some letters more likely are drawn anew.
fn random_text(length: usize) -> Result<String> {
    let random = SystemRandom::new();
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut drawn = [0; 32];
        random
            .fill(&mut drawn)
            .ok()
            .context("failed to generate random bytes")?;
        let whole = drawn
            .iter()
            .filter(|byte| usize::from(**byte) < 256 / ALPHABET.len() * ALPHABET.len());
        let letters = whole.map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
        text.extend(letters.take(length - text.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki;

    #[test]
    fn a_token_has_the_form_that_servers_know() {
        let token = BootstrapToken::random().unwrap();
        assert_eq!(token.text().parse::<BootstrapToken>().unwrap(), token);
        assert_ne!(BootstrapToken::random().unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.secret));
        for wrong in [
            "",
            "abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcde",
            "abcdef.0123456789abcdef.x",
        ] {
            assert!(wrong.parse::<BootstrapToken>().is_err(), "{wrong:?}");
        }
    }

    /// The signature is that of the controller's own test.
    #[test]
    fn only_the_signature_of_this_token_counts() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        let signature = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..psz1NayrXM3IaFzKZGsb5n_mBl7MjtlsZ1xE8MRmF_4";
        assert!(token.has_signed("content", signature));
        assert!(!token.has_signed("other content", signature));
        let other: BootstrapToken = "abcdef.0123456789abcdee".parse().unwrap();
        assert!(!other.has_signed("content", signature));
        let (header, mac) = signature.split_once("..").unwrap();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"abcdef"}"#);
        for forged in [
            format!("{none}..{mac}"),
            format!("{none}.."),
            format!("{header}.."),
            format!("{header}.{}.{mac}", URL_SAFE_NO_PAD.encode("content")),
            format!("{header}..{mac}."),
            String::new(),
        ] {
            assert!(!token.has_signed("content", &forged), "{forged}");
        }
    }

    #[test]
    fn an_authority_is_known_by_its_key_alone() {
        let one = pki::self_signed("one", &["a"]).unwrap().certificate_pem;
        let two = pki::self_signed("two", &["b"]).unwrap().certificate_pem;
        let hash = AuthorityHash::of(&one).unwrap();
        assert_eq!(hash.to_string().parse::<AuthorityHash>().unwrap(), hash);
        assert!(hash.select(&two).unwrap().is_empty());
        // Whoever can write the bundle must not smuggle in an authority beside the one that is meant.
        assert_eq!(hash.select(&format!("{two}{one}")).unwrap().len(), 1);
        for wrong in ["", "sha256:", "sha256:zz", "md5:00", &hash.to_string()[..70]] {
            assert!(wrong.parse::<AuthorityHash>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_secret_part_is_not_told() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        let mut stored = secret(&token, Some("2026-01-01T12:00:00Z"), "for the cellar");
        let data = stored["stringData"].as_object().unwrap().clone();
        for (key, value) in data {
            stored["data"][key] = STANDARD.encode(value.as_str().unwrap()).into();
        }
        let told = row(&stored);
        assert_eq!(told["usages"], "authentication,signing");
        assert_eq!(told["expires"], "2026-01-01T12:00:00Z");
        assert!(!told.to_string().contains("0123456789abcdef"));
    }
}
