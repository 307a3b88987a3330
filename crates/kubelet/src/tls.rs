//! TLS as the kubelet needs it: as a client that does not verify, for probes.

use std::sync::Arc;

use client::AnyServer;
use rustls::ClientConfig;

/// A client that takes any server for whom it claims to be.
pub fn trusting_client() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions()?;
    let verifier = Arc::new(AnyServer(provider));
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}
