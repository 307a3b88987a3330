//! Image names: `busybox` means `docker.io/library/busybox:latest`, everywhere in the same way.

use std::fmt;

const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";
const MAX_NAME_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;
const SHA256_HEX: usize = 64;

/// A full image name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// With its domain: `docker.io/library/busybox`.
    pub repository: String,
    pub tag: Option<String>,
    /// As `sha256:…`. A name with both is that of the digest.
    pub digest: Option<String>,
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
            name: name.to_owned(),
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
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(invalid(
                "invalid reference format: a digest is sha256: and 64 hexadecimal digits",
            ));
        }
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
        let tag = match (tag, digest) {
            (None, None) => Some(DEFAULT_TAG),
            (tag, _) => tag,
        };
        Ok(Self {
            repository,
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
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
    is_hex(hex).then(|| format!("sha256:{hex}"))
}

pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(is_hex)
}

fn is_hex(text: &str) -> bool {
    text.len() == SHA256_HEX && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let rest = |b: u8| word(b) || b == b'.' || b == b'-';
    text.len() <= MAX_TAG_BYTES && text.bytes().next().is_some_and(word) && text.bytes().all(rest)
}

/// Adds the domain and namespace that a short name leaves out.
fn qualify(path: &str) -> String {
    match path.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => path.to_owned(),
        Some(_) => format!("{DEFAULT_DOMAIN}/{path}"),
        None => format!("{DEFAULT_DOMAIN}/{DEFAULT_NAMESPACE}/{path}"),
    }
}

fn is_repository(repository: &str) -> bool {
    let mut parts = repository.split('/');
    let domain = parts.next().unwrap_or_default();
    let in_domain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']');
    let in_path = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    let at_edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    !domain.is_empty()
        && domain.bytes().all(in_domain)
        && parts.all(|part| part.bytes().all(in_path) && at_edge(part.bytes().next()) && at_edge(part.bytes().last()))
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
        check("karve/builtin", "docker.io/karve/builtin:latest");
        check("localhost/app", "localhost/app:latest");
        check("localhost:5000/app:v1", "localhost:5000/app:v1");
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
            "invalid reference format: a digest is sha256: and 64 hexadecimal digits",
        );
        check("a/../b", "invalid reference format");
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
