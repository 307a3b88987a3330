//! TLS configurations from PEM.

use std::sync::Arc;

use anyhow::{Context, Result};
use client::AnyServer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::pki::Identity;

pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = rustls_pemfile::certs(&mut pem.as_bytes()).collect();
    let found = found.context("not PEM")?;
    anyhow::ensure!(!found.is_empty(), "there is no certificate in it");
    Ok(found)
}

pub fn key(pem: &str) -> Result<PrivateKeyDer<'static>> {
    rustls_pemfile::private_key(&mut pem.as_bytes())
        .context("not PEM")?
        .context("there is no private key in it")
}

pub fn roots(pem: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots
            .add(certificate)
            .context("an authority's certificate cannot be used")?;
    }
    Ok(roots)
}

/// A client that checks servers against `authority`, or not at all without one, and shows `identity` if it has one.
pub fn client(authority: Option<&str>, identity: Option<&Identity>) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match authority {
        Some(pem) => builder.with_root_certificates(roots(pem)?),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider))),
    };
    let config = match identity {
        Some(identity) => {
            builder.with_client_auth_cert(certificates(&identity.certificate_pem)?, key(&identity.key_pem)?)?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}
