//! Image names: `busybox` means `docker.io/library/busybox:latest`, everywhere in the same way.

use std::fmt;

use super::digest::{self, Digest};

const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DEFAULT_DOMAIN: &str = "index.docker.io";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";
const MAX_NAME_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// A full image name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// With its domain: `docker.io/library/busybox`.
    pub repository: String,
    pub tag: Option<String>,
    /// A name with both is that of the digest.
    pub digest: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {name:?}: {why}")]
pub struct InvalidReference {
    name: String,
    why: &'static str,
}

impl Reference {
    /// The registry's name and what the registry calls the repository.
    pub fn domain_and_path(&self) -> (&str, &str) {
        self.repository.split_once('/').unwrap_or(("", &self.repository))
    }

    pub fn parse(name: &str) -> Result<Self, InvalidReference> {
        let invalid = |why| InvalidReference {
            name: name.chars().take(MAX_NAME_BYTES).collect(),
            why,
        };
        let (rest, digest) = match name.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (name, None),
        };
        // A colon after the last slash begins a tag; one before it belongs to the domain's port.
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (rest, None),
        };
        let digest = digest.map(Digest::parse).transpose().map_err(|_| {
            invalid("invalid reference format: a digest is sha256: and 64 lower-case hexadecimal digits")
        })?;
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("invalid reference format: bad tag"));
        }
        let repository = qualify(path);
        if repository.len() > MAX_NAME_BYTES || !is_repository(&repository) {
            return Err(invalid(if path.chars().any(char::is_uppercase) {
                "invalid reference format: repository name must be lowercase"
            } else {
                "invalid reference format"
            }));
        }
        let tag = match (tag, &digest) {
            (None, None) => Some(DEFAULT_TAG),
            (tag, _) => tag,
        };
        Ok(Self {
            repository,
            tag: tag.map(str::to_owned),
            digest,
        })
    }

    /// The name by which the image is stored: by digest where there is one.
    pub fn key(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => format!("{}@{digest}", self.repository),
            (None, Some(tag)) => format!("{}:{tag}", self.repository),
            (None, None) => self.repository.clone(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

/// Whether a name is an image's id, with or without its algorithm.
pub fn as_id(name: &str) -> Option<String> {
    let hex = name.strip_prefix("sha256:").unwrap_or(name);
    digest::is_hex(hex).then(|| format!("sha256:{hex}"))
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let rest = |b: u8| word(b) || b == b'.' || b == b'-';
    text.len() <= MAX_TAG_BYTES && text.bytes().next().is_some_and(word) && text.bytes().all(rest)
}

/// Adds the domain and namespace that a short name leaves out.
fn qualify(path: &str) -> String {
    let (domain, rest) = match path.split_once('/') {
        Some((LEGACY_DEFAULT_DOMAIN, rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        _ => (DEFAULT_DOMAIN, path),
    };
    match domain == DEFAULT_DOMAIN && !rest.contains('/') {
        true => format!("{DEFAULT_DOMAIN}/{DEFAULT_NAMESPACE}/{rest}"),
        false => format!("{domain}/{rest}"),
    }
}

/// The grammar of the distribution protocol: these names become addresses and paths at registries.
fn is_repository(repository: &str) -> bool {
    let mut parts = repository.split('/');
    parts.next().is_some_and(is_domain) && parts.all(is_path_component)
}

/// A host's name or address, and perhaps a port.
fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok())
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    inner && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

/// Words of letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_path_component(text: &str) -> bool {
    let is_word = |b: char| b.is_ascii_lowercase() || b.is_ascii_digit();
    let words = |edge: Option<char>| edge.is_some_and(is_word);
    let joints_are_known = text
        .split(is_word)
        .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'));
    words(text.chars().next()) && words(text.chars().last()) && joints_are_known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: &str) {
        let shown = Reference::parse(name).map_or_else(|error| error.why.to_owned(), |reference| reference.key());
        assert_eq!(shown, expected, "{name}");
    }

    #[test]
    fn short_names_are_completed() {
        check("busybox", "docker.io/library/busybox:latest");
        check("busybox:1.37", "docker.io/library/busybox:1.37");
        check("docker.io/busybox", "docker.io/library/busybox:latest");
        check("index.docker.io/a/b", "docker.io/a/b:latest");
        check("karve/builtin", "docker.io/karve/builtin:latest");
        check("localhost/app", "localhost/app:latest");
        check("localhost:5000/app:v1", "localhost:5000/app:v1");
        check("[::1]:5000/app:v1", "[::1]:5000/app:v1");
        check("a.example/b__c/d-----e/f.g:1", "a.example/b__c/d-----e/f.g:1");
        check(
            "registry.k8s.io/e2e-test-images/agnhost:2.53",
            "registry.k8s.io/e2e-test-images/agnhost:2.53",
        );
    }

    #[test]
    fn a_digest_is_stronger_than_a_tag() {
        let digest = format!("sha256:{}", "a".repeat(64));
        check(
            &format!("busybox:1@{digest}"),
            &format!("docker.io/library/busybox@{digest}"),
        );
    }

    #[test]
    fn nonsense_is_refused() {
        check("Busybox", "invalid reference format: repository name must be lowercase");
        check(
            "busybox@sha256:12",
            "invalid reference format: a digest is sha256: and 64 lower-case hexadecimal digits",
        );
        check("a/../b", "invalid reference format");
        check("a/./b", "invalid reference format");
        check("a//b", "invalid reference format");
        check("a/b..c", "invalid reference format");
        check("a/b%2fc", "invalid reference format");
        check("a/b?c", "invalid reference format");
        check("a/b c", "invalid reference format");
        check("evil.example\\host/a", "invalid reference format");
        check(
            "me@evil.example/a",
            "invalid reference format: a digest is sha256: and 64 lower-case hexadecimal digits",
        );
        check("host.example:1:2/a", "invalid reference format");
        check("host.example:99999/a", "invalid reference format");
        check("host.example:/a", "invalid reference format");
        check(".example/a", "invalid reference format");
        check("[::1/a", "invalid reference format");
        check("[fe80::1%25lo]/a", "invalid reference format");
        check("-x.example/a", "invalid reference format");
        check("", "invalid reference format");
        check("busybox:", "invalid reference format: bad tag");
    }

    #[test]
    fn ids_may_lack_their_algorithm() {
        let hex = "0".repeat(64);
        assert_eq!(as_id(&hex), Some(format!("sha256:{hex}")));
        assert_eq!(as_id("0123"), None);
    }
}
