//! The serving certificate that the cluster signs for this node: asked for by a CertificateSigningRequest, kept on the
//! disk, and asked for anew before it expires.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Value;
use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use api::kinds::node::NODE;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::{Backoff, Client};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::UnixTime;
use rustls::server::ParsedCertificate;
use serde_json::json;
use x509_parser::extensions::GeneralName;

use crate::moment::Moment;
use crate::server::{ServingCertificates, certificates};

/// The name that upstream's kubelet gives its file: certificate and key, one after the other.
const FILE: &str = "kubelet-server-current.pem";
/// The part of its life after which a certificate is replaced, in percent, and how far nodes differ in it: early enough to
/// be approved by people, and not by all nodes at once.
const RENEWAL_PERCENT: i64 = 70;
const RENEWAL_SPREAD: i64 = 20;
/// How long it is waited for an answer before the request is made anew.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often it is looked for an answer: soon at first, because the cluster may well answer at once.
const LOOK: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
/// The pauses after requests that came to nothing.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// How often the date is compared with the clock, which may be set at any time.
const CHECK: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the API server refuses the request: {0}")]
    Api(#[from] client::Error),
    #[error("the request cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("the request {0} was denied; see kubectl get csr {0}")]
    Denied(String),
    #[error("the request {0} was neither approved nor signed in time; approve it: kubectl certificate approve {0}")]
    TooLate(String),
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
    #[error("the certificate cannot be kept in {path}: {source}")]
    Keep { path: PathBuf, source: std::io::Error },
}

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
                    tracing::warn!(%error, "The kubelet has no new serving certificate");
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
        let validity = certificate.validity();
        let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let spread = self.node_name.bytes().map(i64::from).sum::<i64>() % RENEWAL_SPREAD;
        let due = from + (to - from) * (RENEWAL_PERCENT + spread) / 100;
        let is_valid = Moment::now() < Moment(to * 1000);
        is_valid.then_some(Moment(due * 1000))
    }

    /// Asks, waits, shows what comes and keeps it; when it is to be replaced.
    async fn obtain(&self, shown: &ServingCertificates) -> Result<Moment, RequestError> {
        self.wait_for_node().await;
        let key = KeyPair::generate()?;
        let params = self.params()?;
        let request = params.serialize_request(&key)?.pem()?;
        let unsigned = params.self_signed(&key)?.pem();
        let key = key.serialize_pem();
        let usable = |set: Result<(), String>| set.map_err(RequestError::Unusable);
        usable(shown.set_requested(Some((unsigned.as_bytes(), key.as_bytes()))))?;
        // If this fails the key stays where it is: without any other, whoever connects can tell by it what is missing.
        let certificate = self.ask(&request).await?;
        let due = self.renewal(&certificate);
        let due = due.ok_or_else(|| RequestError::Unusable("it is not for this node".to_owned()))?;
        usable(shown.set_current(&certificate, key.as_bytes()))?;
        usable(shown.set_requested(None))?;
        self.store(&certificate, key.as_bytes())?;
        tracing::info!(
            node = self.node_name,
            "The kubelet serves with a certificate of the cluster"
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

    /// The certificate that the cluster signs, as PEM.
    async fn ask(&self, request: &str) -> Result<Vec<u8>, RequestError> {
        let requests = self.client.resource(&CERTIFICATE_SIGNING_REQUEST);
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "csr-"},
            "spec": {
                "request": BASE64.encode(request), "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["digital signature", "server auth"],
            },
        });
        let created: Value = requests.create(&object).await?;
        let name = created["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let begun = tokio::time::Instant::now();
        for tries in 0.. {
            tokio::time::sleep(LOOK.wait(tries)).await;
            let answer: Value = match requests.get(&name).await {
                Err(error) if error.is_temporary() => Value::Null,
                other => other?,
            };
            if is_refused(&answer["status"]) {
                return Err(RequestError::Denied(name));
            }
            if let Some(certificate) = answer["status"]["certificate"].as_str() {
                let decoded = BASE64.decode(certificate);
                return decoded.map_err(|error| RequestError::Unusable(error.to_string()));
            }
            if begun.elapsed() > PATIENCE {
                break;
            }
        }
        Err(RequestError::TooLate(name))
    }

    /// Replaces the file in one step; it is never readable by others.
    fn store(&self, certificate: &[u8], key: &[u8]) -> Result<(), RequestError> {
        let path = self.directory.join(FILE);
        let written = write_private(&path, &[certificate, key].concat());
        written.map_err(|source| RequestError::Keep { path, source })
    }
}

fn is_refused(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut kinds = conditions.filter_map(|condition| condition["type"].as_str());
    kinds.any(|kind| matches!(kind, "Denied" | "Failed"))
}

fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let staged = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&staged)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&staged, path)
}

#[cfg(test)]
mod tests;
