//! How values look on a disk, in etcd or in the embedded store's files.

use bytes::Bytes;

/// Translates between values as the API server holds them in memory and as they lie on a disk.
#[expect(clippy::wrong_self_convention, reason = "the two directions read best as a pair")]
pub trait Codec: Send + Sync {
    fn to_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError>;
    fn from_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError>;
}

/// Why a value cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(pub String);

/// Values lie on the disk as they are.
pub struct Identity;

impl Codec for Identity {
    fn to_disk(&self, _key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        Ok(value.clone())
    }

    fn from_disk(&self, _key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        Ok(value.clone())
    }
}
