//! SHA-256 digests as images write them.

use std::io::{self, Read};

use ring::digest::{Context, Digest, SHA256};

/// The digest of bytes, as `sha256:…`.
pub fn of(bytes: &[u8]) -> String {
    shown(&ring::digest::digest(&SHA256, bytes))
}

/// Digests what is read through it.
pub struct Digesting<R> {
    inner: R,
    context: Context,
}

impl<R: Read> Digesting<R> {
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            context: Context::new(&SHA256),
        }
    }

    /// Reads to the end and answers the digest of everything.
    pub fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(shown(&self.context.finish()))
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.context.update(&buffer[..length]);
        Ok(length)
    }
}

pub fn shown(digest: &Digest) -> String {
    use std::fmt::Write;
    digest.as_ref().iter().fold("sha256:".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
