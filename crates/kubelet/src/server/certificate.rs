//! The certificate that the kubelet's server shows, which may be replaced while it serves.

use std::sync::Arc;

use client::SERVING_CHALLENGE;
use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("failed to read the certificates: {0}")]
    Chain(#[source] pem::Error),
    #[error("failed to read the private key: {0}")]
    Key(#[source] pem::Error),
    #[error("the certificate does not go with its private key: {0}")]
    Pair(#[from] rustls::Error),
}

/// What is shown to whom.
#[derive(Debug, Default)]
pub struct ServingCertificates {
    /// Vouched for.
    current: RwLock<Option<Arc<CertifiedKey>>>,
    /// With the key for which a certificate has been asked; whoever decides about it connects and looks.
    requested: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServingCertificates {
    pub fn set_current(&self, chain: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        *self.current.write() = Some(certified(chain, key)?);
        Ok(())
    }

    /// Puts forward the key that is to be certified, in a certificate that nobody else signed; or takes it back.
    pub fn set_requested(&self, requested: Option<(&[u8], &[u8])>) -> Result<(), CertificateError> {
        let requested = requested.map(|(chain, key)| certified(chain, key)).transpose()?;
        *self.requested.write() = requested;
        Ok(())
    }

    fn choose(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let (current, requested) = (self.current.read().clone(), self.requested.read().clone());
        match name {
            Some(SERVING_CHALLENGE) => requested.or(current),
            // Whoever verifies certificates learns from one that nobody signed what it waits for.
            _ => current.or(requested),
        }
    }
}

impl ResolvesServerCert for ServingCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name())
    }
}

fn certified(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, CertificateError> {
    let chain = certificates(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::Key)?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider())?))
}

pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    parsed.map_err(CertificateError::Chain)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_requested_key_is_shown_to_who_decides_and_to_others_only_for_want_of_another() {
        let pair = || {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::default().self_signed(&key).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let certificates = ServingCertificates::default();
        let shown = |name| certificates.choose(name).map(|shown| shown.cert[0].clone());
        assert_eq!(shown(None), None);
        let (requested, key) = pair();
        certificates
            .set_requested(Some((requested.as_bytes(), key.as_bytes())))
            .unwrap();
        let requested = shown(None);
        assert!(requested.is_some());
        let (current, key) = pair();
        certificates.set_current(current.as_bytes(), key.as_bytes()).unwrap();
        assert_ne!(shown(None), requested);
        assert_ne!(shown(Some("node.example.com")), requested);
        assert_eq!(shown(Some(SERVING_CHALLENGE)), requested);
        certificates.set_requested(None).unwrap();
        assert_eq!(shown(Some(SERVING_CHALLENGE)), shown(None));
    }
}
