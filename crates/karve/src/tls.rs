//! TLS configurations from PEM.

use std::sync::Arc;

use anyhow::{Context, Result};
use client::AnyServer;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::pki::Identity;

pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.context("not PEM")?;
    anyhow::ensure!(!found.is_empty(), "the file contains no certificate");
    Ok(found)
}

pub fn key(pem: &str) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).context("the file contains no private key")
}

pub fn roots(pem: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).context("invalid CA certificate")?;
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

/// Whose certificates clients show, as PEM.
pub enum Clients<'a> {
    /// They are not asked for any.
    Unknown,
    /// One who shows none may still be let in by other means.
    MayBeOf(&'a str),
    MustBeOf(&'a str),
}

/// A server that shows `identity`.
pub fn server(identity: &Identity, clients: &Clients<'_>) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let verifier = |pem: &str| {
        anyhow::Ok(WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots(pem)?),
            provider.clone(),
        ))
    };
    let builder = match clients {
        Clients::Unknown => builder.with_no_client_auth(),
        Clients::MayBeOf(pem) => builder.with_client_cert_verifier(verifier(pem)?.allow_unauthenticated().build()?),
        Clients::MustBeOf(pem) => builder.with_client_cert_verifier(verifier(pem)?.build()?),
    };
    builder
        .with_single_cert(certificates(&identity.certificate_pem)?, key(&identity.key_pem)?)
        .context("invalid certificate")
}
