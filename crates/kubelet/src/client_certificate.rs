//! The certificate by which this node proves to the API server which node it is: asked for with a bootstrap token at
//! first and with itself later, kept on the disk, and replaced before it expires.

use std::fs;
use std::path::PathBuf;

use client::Client;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};

use crate::certificate_request::{self, CHECK, Purpose, RETRY, RequestError, UnusableCertificate};
use crate::moment::Moment;
use crate::server::certificates;

/// The name that upstream's kubelet gives its file: certificate and key, one after the other.
const FILE: &str = "kubelet-client-current.pem";
const PURPOSE: Purpose = Purpose {
    signer: "kubernetes.io/kube-apiserver-client-kubelet",
    usages: ["digital signature", "client auth"],
};

/// A node's wish for a certificate as a client.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    pub node_name: String,
    pub directory: PathBuf,
}

impl ClientCertificate {
    /// Certificate and key in one file. Clients that are given it read it anew when they connect.
    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Whether there is one that can be used now.
    pub fn is_usable(&self) -> bool {
        self.due(Moment::now()).is_some()
    }

    /// Asks as `client`, who must be allowed to, and keeps what comes.
    pub async fn obtain(&self, client: &Client) -> Result<(), RequestError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, self.common_name());
        let request = params.serialize_request(&key)?.pem()?;
        let certificate = certificate_request::ask(client, &PURPOSE, &request).await?;
        self.check(&certificate, &key, Moment::now())?;
        certificate_request::store(self.path(), &certificate, key.serialize_pem().as_bytes())
    }

    /// Replaces the certificate whenever it is time, for as long as it is polled. `client` shows the certificate.
    pub async fn keep(self, client: Client) {
        let mut failures = 0;
        loop {
            let now = Moment::now();
            match self.due(now) {
                Some(due) if now < due => {
                    tokio::time::sleep(CHECK.min(due.since(now))).await;
                    continue;
                }
                _ => {}
            }
            match self.obtain(&client).await {
                Ok(()) => {
                    failures = 0;
                    tracing::info!(node = self.node_name, "Obtained a new client certificate for the node");
                }
                Err(error) => {
                    tracing::warn!(node = self.node_name, %error, "Failed to obtain a new client certificate for the node; retrying");
                    tokio::time::sleep(RETRY.wait(failures)).await;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// When the kept certificate is to be replaced, if it can be used at all.
    fn due(&self, now: Moment) -> Option<Moment> {
        let kept = fs::read(self.path()).ok()?;
        let key = KeyPair::from_pem(&String::from_utf8_lossy(key_block(&kept)?)).ok()?;
        self.check(&kept, &key, now).ok()
    }

    /// When a certificate is to be replaced, or why it cannot be used: what the cluster signed must be what was asked for.
    fn check(&self, pem: &[u8], key: &KeyPair, now: Moment) -> Result<Moment, UnusableCertificate> {
        let chain = certificates(pem)?;
        let first = chain.first().ok_or(UnusableCertificate::Empty)?;
        let parsed = x509_parser::parse_x509_certificate(first);
        let (_, certificate) = parsed.map_err(|_| UnusableCertificate::Malformed)?;
        let mut names = certificate.subject().iter_common_name();
        let name = names.next().and_then(|name| name.as_str().ok());
        if name != Some(&self.common_name()) {
            return Err(UnusableCertificate::OtherNode);
        }
        if certificate.public_key().raw != key.subject_public_key_info() {
            return Err(UnusableCertificate::OtherKey);
        }
        let due = certificate_request::renewal(certificate.validity(), &self.node_name, now);
        due.ok_or(UnusableCertificate::Expired)
    }

    fn common_name(&self) -> String {
        format!("system:node:{}", self.node_name)
    }
}

/// The part of a PEM file that holds the key.
fn key_block(pem: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----";
    let start = pem.windows(KEY.len()).position(|window| window == KEY)?;
    pem.get(start..)
}

#[cfg(test)]
mod tests;
