//! Credentials for registries, from the pull secrets of a pod.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cri::v1;
use serde::Deserialize;

use crate::objects::Data;
use crate::pull_records::SecretCredential;

#[derive(Default)]
pub struct Keyring {
    /// Registry, perhaps with a path, to credentials.
    entries: Vec<(String, Credential)>,
}

/// What to show a registry, and which secret it is from.
#[derive(Clone, Debug)]
pub struct Credential {
    pub auth: v1::AuthConfig,
    pub source: SecretCredential,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
    email: String,
    identitytoken: String,
    registrytoken: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerConfig {
    auths: BTreeMap<String, Entry>,
}

/// The registry of images that name none.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Keyring {
    /// Adds a secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`.
    pub fn add(&mut self, namespace: &str, name: &str, secret: &Data) {
        let value = |key: &str| secret.values.get(key).map(Vec::as_slice).unwrap_or_default();
        let entries = match secret.secret_type.as_str() {
            "kubernetes.io/dockerconfigjson" => {
                serde_json::from_slice::<DockerConfig>(value(".dockerconfigjson")).map(|config| config.auths)
            }
            "kubernetes.io/dockercfg" => serde_json::from_slice(value(".dockercfg")),
            _ => return,
        };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                return tracing::warn!(namespace, secret = name, %error, "Ignoring an image pull secret that cannot be read");
            }
        };
        for (key, entry) in entries {
            let entry = entry.decoded();
            let source = SecretCredential {
                uid: secret.uid.clone(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                credential_hash: entry.digest(),
            };
            let server = normalize(&key);
            let auth = entry.to_auth(&server);
            self.entries.push((server, Credential { auth, source }));
        }
    }

    /// The credentials that fit an image, the most specific first.
    pub fn lookup(&self, image: &str) -> Vec<Credential> {
        let path = repository(image);
        let mut fitting: Vec<&(String, Credential)> = self.entries.iter().filter(|(key, _)| fits(key, &path)).collect();
        fitting.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
        fitting.into_iter().map(|(_, credential)| credential.clone()).collect()
    }
}

impl Entry {
    /// With user and password apart, which some write joined.
    fn decoded(mut self) -> Entry {
        let joined = BASE64.decode(&self.auth).ok();
        let joined = joined.and_then(|auth| String::from_utf8(auth).ok());
        if let Some((username, password)) = joined.as_deref().and_then(|auth| auth.split_once(':')) {
            self.username = username.to_owned();
            self.password = password.to_owned();
        }
        self
    }

    /// A digest by which the same credential is known in another secret. It is upstream's: that of the JSON that Go
    /// writes for it.
    fn digest(&self) -> String {
        let fields = [
            ("username", &self.username),
            ("password", &self.password),
            ("email", &self.email),
            ("identitytoken", &self.identitytoken),
            ("registrytoken", &self.registrytoken),
        ];
        let present = fields.iter().filter(|(_, value)| !value.is_empty());
        let written = present.map(|(name, value)| format!("\"{name}\":{}", go_string(value)));
        let json = format!("{{{}}}", written.collect::<Vec<_>>().join(","));
        let digest = ring::digest::digest(&ring::digest::SHA256, json.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn to_auth(&self, server: &str) -> v1::AuthConfig {
        v1::AuthConfig {
            username: self.username.clone(),
            password: self.password.clone(),
            server_address: server.to_owned(),
            identity_token: self.identitytoken.clone(),
            registry_token: self.registrytoken.clone(),
            ..v1::AuthConfig::default()
        }
    }
}

/// A string as Go writes it in JSON: it escapes what could end a script in a web page.
fn go_string(text: &str) -> String {
    let mut written = serde_json::Value::from(text).to_string();
    for escaped in ['<', '>', '&', '\u{2028}', '\u{2029}'] {
        written = written.replace(escaped, &format!("\\u{:04x}", u32::from(escaped)));
    }
    written
}

/// `https://index.docker.io/v1/` and its like as `docker.io`.
fn normalize(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let key = key.trim_end_matches('/');
    let key = key
        .strip_suffix("/v1")
        .or_else(|| key.strip_suffix("/v2"))
        .unwrap_or(key);
    match key {
        "index.docker.io" | "registry-1.docker.io" => DEFAULT_REGISTRY.to_owned(),
        key => key.to_owned(),
    }
}

/// Registry and path of an image, without its tag or digest.
fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let slash = name.rfind('/').map_or(0, |at| at + 1);
    let name = match name[slash..].find(':') {
        Some(colon) => &name[..slash + colon],
        None => name,
    };
    let registry = name.split('/').next().unwrap_or_default();
    let named = name.contains('/') && (registry.contains(['.', ':']) || registry == "localhost");
    match named {
        true => name.to_owned(),
        false => format!("{DEFAULT_REGISTRY}/{name}"),
    }
}

/// A key fits if its path is a prefix and its registry matches, label by label, with `*` for any.
fn fits(key: &str, path: &str) -> bool {
    let (mut keys, mut parts) = (key.split('/'), path.split('/'));
    let (host, pattern) = (parts.next().unwrap_or_default(), keys.next().unwrap_or_default());
    let labels_fit = pattern.split('.').count() == host.split('.').count()
        && pattern
            .split('.')
            .zip(host.split('.'))
            .all(|(pattern, label)| pattern == "*" || pattern == label);
    labels_fit && keys.all(|key| parts.next() == Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(kind: &str, config: &str) -> Data {
        let key = kind.replace("kubernetes.io/", ".");
        Data {
            values: BTreeMap::from([(key, config.as_bytes().to_vec())]),
            uid: "u-1".to_owned(),
            secret_type: kind.to_owned(),
        }
    }

    #[test]
    fn credentials_are_known_by_upstreams_digests() {
        let digest = |entry: &str| {
            let mut keyring = Keyring::default();
            let config = format!(r#"{{"a.example": {entry}}}"#);
            keyring.add("default", "pull", &secret("kubernetes.io/dockercfg", &config));
            keyring.lookup("a.example/b")[0].source.credential_hash.clone()
        };
        let of = |json: &str| {
            let digest = ring::digest::digest(&ring::digest::SHA256, json.as_bytes());
            digest
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let plain = of(r#"{"username":"me","password":"pw"}"#);
        assert_eq!(digest(r#"{"username":"me","password":"pw"}"#), plain);
        assert_eq!(digest(r#"{"auth":"bWU6cHc="}"#), plain);
        assert_eq!(digest(r#"{"auth":"bWU6cHc"}"#), plain);
        let escaped = of(
            r#"{"username":"<\u0026>","password":"\u2028"}"#.replace('<', "\\u003c").replace('>', "\\u003e").as_str(),
        );
        assert_eq!(digest(r#"{"username":"<&>","password":"\u2028"}"#), escaped);
        assert_ne!(digest(r#"{"username":"me","password":"other"}"#), plain);
    }

    #[test]
    fn a_secret_of_another_type_is_no_pull_secret() {
        let mut keyring = Keyring::default();
        let mut opaque = secret("kubernetes.io/dockercfg", r#"{"a.example": {"username":"me"}}"#);
        opaque.secret_type = "Opaque".to_owned();
        keyring.add("default", "pull", &opaque);
        assert!(keyring.lookup("a.example/b").is_empty());
    }

    #[test]
    fn credentials_are_found_by_registry_and_path() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
            "registry.example.com:5000": {"username": "all", "password": "x"},
            "registry.example.com:5000/team": {"username": "team", "password": "x"},
            "*.wild.example": {"username": "wild", "password": "x"}}}"#;
        let mut keyring = Keyring::default();
        keyring.add("default", "pull", &secret("kubernetes.io/dockerconfigjson", config));
        let users = |image: &str| -> Vec<String> {
            let credentials = keyring.lookup(image).into_iter();
            credentials.map(|credential| credential.auth.username).collect()
        };
        assert_eq!(users("busybox:1"), ["hub"]);
        assert_eq!(users("registry.example.com:5000/team/app@sha256:00"), ["team", "all"]);
        assert_eq!(users("registry.example.com:5000/other"), ["all"]);
        assert_eq!(users("a.wild.example/x:2"), ["wild"]);
        assert!(users("wild.example/x").is_empty());
    }
}
