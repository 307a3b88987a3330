//! Hollow nodes as themselves: certificates that the cluster's authority would give their kubelets.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// The group of all nodes.
const NODES: &str = "system:nodes";

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// One for all nodes: who they are is in their certificates, and making thousands of keys would measure nothing.
    key: KeyPair,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl Authority {
    pub fn open(
        certificate: &Path,
        key: &Path,
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self> {
        let read =
            |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        let key = KeyPair::from_pem(&read(key)?).context("--ca-key holds no key")?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(&read(certificate)?, key)?,
            key: KeyPair::generate()?,
            roots,
            provider,
        })
    }

    /// How the node of this name speaks HTTP/2 with the server.
    pub fn node(&self, name: &str) -> Result<TlsConnector> {
        let certificate = subject(name).signed_by(&self.key, &self.issuer)?;
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(anyhow::Error::msg)?;
        let builder =
            ClientConfig::builder_with_provider(self.provider.clone()).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(self.roots.clone());
        let mut config = builder.with_client_auth_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A node connects once; room for sessions would be most of its memory.
        config.resumption = Resumption::disabled();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn subject(node: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, NODES);
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{node}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_kubelets_are() {
        let name = subject("hollow-1").distinguished_name;
        let text = |kind: DnType| format!("{:?}", name.get(&kind));
        assert!(text(DnType::CommonName).contains("system:node:hollow-1"));
        assert!(text(DnType::OrganizationName).contains("system:nodes"));
    }
}
