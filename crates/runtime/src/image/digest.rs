//! SHA-256 digests as images write them. A [`Digest`] is always well-formed, so it may name files.

use std::fmt;
use std::io::{self, Read};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize};

const ALGORITHM: &str = "sha256:";
const HEX_CHARS: usize = 64;
/// How much of something that is no digest is repeated to the user.
const SHOWN_CHARS: usize = 80;

/// `sha256:` and 64 lower-case hexadecimal digits: the one algorithm that images use in practice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Digest(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid digest {0:?}: not sha256: and 64 lower-case hexadecimal digits")]
pub struct InvalidDigest(String);

impl Digest {
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        match text.strip_prefix(ALGORITHM) {
            Some(hex) if is_hex(hex) => Ok(Self(text.to_owned())),
            _ => Err(InvalidDigest(text.chars().take(SHOWN_CHARS).collect())),
        }
    }

    /// The digest of bytes.
    pub fn sha256(bytes: &[u8]) -> Self {
        Self::shown(&ring::digest::digest(&SHA256, bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digits alone.
    pub fn hex(&self) -> &str {
        &self.0[ALGORITHM.len()..]
    }

    fn shown(digest: &ring::digest::Digest) -> Self {
        use fmt::Write;
        Self(digest.as_ref().iter().fold(ALGORITHM.to_owned(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Whether a text is the digits of a digest.
pub fn is_hex(text: &str) -> bool {
    text.len() == HEX_CHARS && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Digests bytes as they come.
pub struct Digester {
    context: Context,
    bytes: u64,
}

impl Digester {
    pub fn new() -> Self {
        Self {
            context: Context::new(&SHA256),
            bytes: 0,
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self) -> Digest {
        Digest::shown(&self.context.finish())
    }
}

/// Digests what is read through it.
pub struct Digesting<R> {
    inner: R,
    digester: Digester,
}

impl<R: Read> Digesting<R> {
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            digester: Digester::new(),
        }
    }

    /// The digest of what was read.
    pub fn finish(self) -> Digest {
        self.digester.finish()
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.digester.update(&buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_a_path_is_no_digest() {
        let hex = "0123456789abcdef".repeat(4);
        assert_eq!(Digest::parse(&format!("sha256:{hex}")).unwrap().hex(), hex);
        let upper = hex.to_uppercase();
        for text in [
            String::new(),
            "/tmp/x".into(),
            "/tmp/x.partial/b".into(),
            hex.clone(),
            "sha256:".into(),
            format!("sha256:{upper}"),
            format!("sha256:{}", &hex[1..]),
            format!("sha256:{hex}0"),
            format!("sha256:../{}", &hex[3..]),
            format!("sha256:{}\0", &hex[1..]),
            format!("sha256:/{}", &hex[1..]),
            format!("SHA256:{hex}"),
            format!("md5:{}", &hex[..32]),
            format!("sha512:{hex}{hex}"),
            format!("sha256:sha256:{hex}"),
            format!("sha256:{hex} "),
        ] {
            assert!(Digest::parse(&text).is_err(), "{text:?}");
            let json = serde_json::to_string(&text).unwrap();
            assert!(serde_json::from_str::<Digest>(&json).is_err(), "{text:?}");
        }
        let long = Digest::parse(&"x".repeat(1 << 20)).unwrap_err().to_string();
        assert!(long.len() < 200, "an image's text must not flood events");
    }
}
