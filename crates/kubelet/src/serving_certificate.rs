//! The serving certificate that the cluster signs for this node: asked for by a CertificateSigningRequest, kept on the
//! disk, and asked for anew before it expires.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::Value;
use api::kinds::node::NODE;
use client::Client;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::UnixTime;
use rustls::server::ParsedCertificate;
use x509_parser::extensions::GeneralName;

use crate::certificate_request::{self, CHECK, LOOK, Purpose, RETRY, RequestError, UnusableCertificate};
use crate::moment::Moment;
use crate::server::{CertificateError, ServingCertificates, certificates};

/// The name that upstream's kubelet gives its file: certificate and key, one after the other.
const FILE: &str = "kubelet-server-current.pem";
const PURPOSE: Purpose = Purpose {
    signer: "kubernetes.io/kubelet-serving",
    usages: ["digital signature", "server auth"],
};

/// A kubelet's wish for certificates of its own.
pub struct ServingRequest {
    pub client: Client,
    pub node_name: String,
    pub node_ips: Vec<IpAddr>,
    pub directory: PathBuf,
    /// PEM of who signs, if that is known: a kept certificate of somebody else is asked for anew.
    pub authority: Option<Vec<u8>>,
}

impl ServingRequest {
    /// Keeps the kubelet's server in certificates, for as long as it is not dropped.
    pub async fn keep(self, shown: Arc<ServingCertificates>) {
        let mut due = self.load(&shown).unwrap_or_default();
        let mut failures = 0;
        loop {
            if Moment::now() < due {
                tokio::time::sleep(CHECK.min(due.since(Moment::now()))).await;
                continue;
            }
            match self.obtain(&shown).await {
                Ok(next) => (due, failures) = (next, 0),
                Err(error) => {
                    tracing::warn!(node = self.node_name, %error, "Failed to obtain a new serving certificate for the kubelet; retrying");
                    tokio::time::sleep(RETRY.wait(failures)).await;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// Shows the certificate that was kept, if it is good for this node; when it is to be replaced.
    fn load(&self, shown: &ServingCertificates) -> Option<Moment> {
        let kept = fs::read(self.directory.join(FILE)).ok()?;
        let due = self.renewal(&kept)?;
        shown.set_current(&kept, &kept).ok()?;
        Some(due)
    }

    /// When a certificate is to be replaced, if it can be used at all.
    fn renewal(&self, pem: &[u8]) -> Option<Moment> {
        let chain = certificates(pem).ok()?;
        let first = chain.first()?;
        if let Some(authority) = &self.authority {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(authority).ok()?);
            let algorithms = ring::default_provider().signature_verification_algorithms.all;
            let parsed = ParsedCertificate::try_from(first).ok()?;
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &chain[1..], UnixTime::now(), algorithms)
                .ok()?;
        }
        let (_, certificate) = x509_parser::parse_x509_certificate(first).ok()?;
        let names = certificate.subject_alternative_name().ok()??;
        let has = |ip: &IpAddr| {
            let octets = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let mut names = names.value.general_names.iter();
            names.any(|name| matches!(name, GeneralName::IPAddress(found) if *found == octets))
        };
        let subject = certificate.subject().iter_common_name().next()?.as_str().ok()?;
        if subject != self.common_name() || !self.node_ips.iter().all(has) {
            return None;
        }
        certificate_request::renewal(certificate.validity(), &self.node_name, Moment::now())
    }

    /// Asks, waits, shows what comes and keeps it; when it is to be replaced.
    async fn obtain(&self, shown: &ServingCertificates) -> Result<Moment, RequestError> {
        self.wait_for_node().await;
        let key = KeyPair::generate()?;
        let params = self.params()?;
        let request = params.serialize_request(&key)?.pem()?;
        let unsigned = params.self_signed(&key)?.pem();
        let key = key.serialize_pem();
        let usable = |set: Result<(), CertificateError>| set.map_err(UnusableCertificate::from);
        usable(shown.set_requested(Some((unsigned.as_bytes(), key.as_bytes()))))?;
        // If this fails the key stays where it is: without any other, whoever connects can tell by it what is missing.
        let certificate = certificate_request::ask(&self.client, &PURPOSE, &request).await?;
        let due = self.renewal(&certificate);
        let due = due.ok_or(UnusableCertificate::OtherNode)?;
        usable(shown.set_current(&certificate, key.as_bytes()))?;
        usable(shown.set_requested(None))?;
        certificate_request::store(self.directory.join(FILE), &certificate, key.as_bytes())?;
        tracing::info!(
            node = self.node_name,
            "Obtained a new serving certificate for the kubelet"
        );
        Ok(due)
    }

    /// Who approves goes by the addresses that the Node has.
    async fn wait_for_node(&self) {
        let nodes = self.client.resource(&NODE);
        for tries in 0.. {
            if let Ok(node) = nodes.get::<Value>(&self.node_name).await
                && node["status"]["addresses"].is_array()
            {
                return;
            }
            tokio::time::sleep(LOOK.wait(tries)).await;
        }
    }

    fn common_name(&self) -> String {
        format!("system:node:{}", self.node_name)
    }

    fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, self.common_name());
        let name = SanType::DnsName(self.node_name.as_str().try_into()?);
        let addresses = self.node_ips.iter().map(|address| SanType::IpAddress(*address));
        params.subject_alt_names = std::iter::once(name).chain(addresses).collect();
        Ok(params)
    }
}

#[cfg(test)]
mod tests;
