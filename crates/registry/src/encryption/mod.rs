//! Encryption at rest: values of chosen resources are encrypted on their way to a disk and decrypted on their way back,
//! in upstream's format, so that an upstream API server with the same configuration reads them too.
//!
//! Start with [`Encryption`], the codec. `configuration` reads an `EncryptionConfiguration` into `rules`, which say what
//! encrypts which resource; `cipher` has the algorithms. Memory holds plain text.

mod cipher;
mod configuration;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use auth::configuration::ConfigurationError;
use bytes::Bytes;
use store::codec::{Codec, CodecError};

use self::rules::Rules;
use crate::codec::EtcdCodec;

/// All values that anybody encrypted begin with this.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Encrypts and decrypts as the newest configuration says. Without one nothing is encrypted, and what is encrypted cannot
/// be read.
pub struct Encryption {
    /// The root of all keys, without a slash at the end.
    root: String,
    rules: ArcSwap<Rules>,
    has_read_outdated: AtomicBool,
}

impl Encryption {
    /// Encrypts nothing.
    pub fn none(root: &str) -> Encryption {
        Encryption {
            root: root.trim_end_matches('/').to_owned(),
            rules: ArcSwap::from_pointee(Rules::default()),
            has_read_outdated: AtomicBool::new(false),
        }
    }

    /// Does what an `EncryptionConfiguration` says.
    pub fn parse(root: &str, text: &str) -> Result<Encryption, ConfigurationError> {
        let encryption = Encryption::none(root);
        encryption.replace(text)?;
        Ok(encryption)
    }

    /// Takes over another configuration; a faulty one changes nothing.
    pub fn replace(&self, text: &str) -> Result<(), ConfigurationError> {
        self.rules.store(Arc::new(configuration::parse(text)?));
        Ok(())
    }

    /// Whether anything was read that would be written in another way now.
    pub fn has_read_outdated(&self) -> bool {
        self.has_read_outdated.load(Ordering::Relaxed)
    }
}

impl Codec for Encryption {
    fn to_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        let rules = self.rules.load();
        match rules.providers_of(&self.root, key) {
            Some(providers) => providers.encrypt(key, value),
            None => Ok(value.clone()),
        }
    }

    fn from_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        let rules = self.rules.load();
        match rules.providers_of(&self.root, key) {
            Some(providers) => {
                let (plain, is_current) = providers.decrypt(key, value)?;
                if !is_current {
                    self.has_read_outdated.store(true, Ordering::Relaxed);
                }
                Ok(plain)
            }
            None if value.starts_with(ENCRYPTED) => Err(CodecError(
                "identity transformer tried to read encrypted data; name its resource and key in the file of \
                 --encryption-provider-config"
                    .to_owned(),
            )),
            None => Ok(value.clone()),
        }
    }
}

/// Upstream's encoding in etcd, encrypted.
pub struct EncryptedEtcdCodec(pub Arc<Encryption>);

impl Codec for EncryptedEtcdCodec {
    fn to_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        self.0.to_disk(key, &EtcdCodec.to_disk(key, value)?)
    }

    fn from_disk(&self, key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        EtcdCodec.from_disk(key, &self.0.from_disk(key, value)?)
    }
}
