//! Credentials for registries, from the pull secrets of a pod.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cri::v1;
use serde::Deserialize;

use crate::objects::Data;

#[derive(Default)]
pub struct Keyring {
    /// Registry, perhaps with a path, to credentials.
    entries: Vec<(String, Entry)>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
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

impl Keyring {
    /// Adds a secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`.
    pub fn add(&mut self, secret: &Data) {
        let entries = match (secret.values.get(".dockerconfigjson"), secret.values.get(".dockercfg")) {
            (Some(json), _) => serde_json::from_slice::<DockerConfig>(json).map(|config| config.auths),
            (None, Some(json)) => serde_json::from_slice(json),
            (None, None) => return,
        };
        match entries {
            Ok(entries) => self
                .entries
                .extend(entries.into_iter().map(|(key, entry)| (normalize(&key), entry))),
            Err(error) => tracing::warn!(%error, "a pull secret cannot be read and is left out"),
        }
    }

    /// The credentials that fit an image, the most specific first.
    pub fn lookup(&self, image: &str) -> Vec<Option<v1::AuthConfig>> {
        let path = repository(image);
        let mut fitting: Vec<&(String, Entry)> = self.entries.iter().filter(|(key, _)| fits(key, &path)).collect();
        fitting.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
        fitting
            .into_iter()
            .map(|(key, entry)| Some(entry.to_auth(key)))
            .collect()
    }
}

impl Entry {
    fn to_auth(&self, server: &str) -> v1::AuthConfig {
        let decoded = STANDARD
            .decode(&self.auth)
            .ok()
            .and_then(|auth| String::from_utf8(auth).ok());
        let pair = decoded.as_deref().and_then(|auth| auth.split_once(':'));
        let (username, password) = pair.unwrap_or((&self.username, &self.password));
        v1::AuthConfig {
            username: username.to_owned(),
            password: password.to_owned(),
            server_address: server.to_owned(),
            identity_token: self.identitytoken.clone(),
            registry_token: self.registrytoken.clone(),
            ..v1::AuthConfig::default()
        }
    }
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

    #[test]
    fn credentials_are_found_by_registry_and_path() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
            "registry.example.com:5000": {"username": "all", "password": "x"},
            "registry.example.com:5000/team": {"username": "team", "password": "x"},
            "*.wild.example": {"username": "wild", "password": "x"}}}"#;
        let mut keyring = Keyring::default();
        keyring.add(&Data {
            values: BTreeMap::from([(".dockerconfigjson".to_owned(), config.as_bytes().to_vec())]),
        });
        let users = |image: &str| -> Vec<String> {
            keyring
                .lookup(image)
                .into_iter()
                .flatten()
                .map(|auth| auth.username)
                .collect()
        };
        assert_eq!(users("busybox:1"), ["hub"]);
        assert_eq!(users("registry.example.com:5000/team/app@sha256:00"), ["team", "all"]);
        assert_eq!(users("registry.example.com:5000/other"), ["all"]);
        assert_eq!(users("a.wild.example/x:2"), ["wild"]);
        assert!(users("wild.example/x").is_empty());
    }
}
