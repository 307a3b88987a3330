//! Other addresses for the images of a registry.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::base_url;
use crate::image::reference::Reference;

/// Asked before the registry itself. Credentials are never sent to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// The registry's name in images, or `*` for all.
    registry: String,
    /// Such as `https://mirror.example:5000`.
    url: String,
}

/// A mirror that is not written as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write REGISTRY=URL, such as docker.io=https://mirror.example:5000; the registry can be *")]
pub struct InvalidMirror;

impl FromStr for Mirror {
    type Err = InvalidMirror;

    fn from_str(text: &str) -> Result<Mirror, InvalidMirror> {
        let (registry, url) = text.split_once('=').ok_or(InvalidMirror)?;
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let host = host.map(|host| host.trim_end_matches('/'));
        match host {
            Some(host) if !registry.is_empty() && !host.is_empty() && !host.contains('/') => Ok(Mirror {
                registry: registry.to_owned(),
                url: url.trim_end_matches('/').to_owned(),
            }),
            _ => Err(InvalidMirror),
        }
    }
}

/// Where an image's repository may be, in the order in which to ask, and whether that is its own registry.
pub fn places(reference: &Reference, mirrors: &[Mirror]) -> Vec<(String, bool)> {
    let (domain, path) = reference.domain_and_path();
    let fitting = mirrors
        .iter()
        .filter(|mirror| mirror.registry == domain || mirror.registry == "*");
    let mirrored = fitting.map(|mirror| (format!("{}/v2/{path}", mirror.url), false));
    mirrored.chain([(base_url(reference), true)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_asked_before_the_registry_itself() {
        let mirrors = ["docker.io=http://127.0.0.1:5000/", "quay.io=https://a", "*=https://b:1"];
        let mirrors: Vec<Mirror> = mirrors.iter().map(|text| text.parse().unwrap()).collect();
        let expected = [
            ("http://127.0.0.1:5000/v2/library/busybox", false),
            ("https://b:1/v2/library/busybox", false),
            ("https://registry-1.docker.io/v2/library/busybox", true),
        ];
        let expected: Vec<(String, bool)> = expected.map(|(url, own)| (url.to_owned(), own)).into();
        assert_eq!(places(&Reference::parse("busybox").unwrap(), &mirrors), expected);
    }

    #[test]
    fn what_is_no_mirror_is_refused() {
        for text in [
            "",
            "docker.io",
            "=https://a",
            "docker.io=a",
            "docker.io=https://",
            "docker.io=https://a/v2",
        ] {
            assert!(text.parse::<Mirror>().is_err(), "{text}");
        }
    }
}
