//! Certificates that the cluster signs for this node: asked for by a CertificateSigningRequest and kept on the disk.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Value;
use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::{Backoff, Client};
use serde_json::json;
use x509_parser::certificate::Validity;

use crate::moment::Moment;
use crate::server::CertificateError;

/// The part of its life after which a certificate is replaced, in percent, and how far nodes differ in it: early enough to
/// be approved by people, and not by all nodes at once.
const RENEWAL_PERCENT: i64 = 70;
const RENEWAL_SPREAD: i64 = 20;
/// How long it is waited for an answer before the request is made anew.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often it is looked for an answer: soon at first, because the cluster may well answer at once.
pub const LOOK: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
/// The pauses after requests that came to nothing.
pub const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// How often the date is compared with the clock, which may be set at any time.
pub const CHECK: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("failed to create or read the CertificateSigningRequest: {0}")]
    Api(#[from] client::Error),
    #[error("failed to make the certificate signing request: {0}")]
    Make(#[from] rcgen::Error),
    #[error("CertificateSigningRequest {0} was denied or failed; see kubectl describe csr {0}")]
    Denied(String),
    #[error(
        "CertificateSigningRequest {0} was not approved and signed in time; approve it: kubectl certificate approve {0}"
    )]
    TooLate(String),
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] UnusableCertificate),
    #[error("failed to store the certificate in {path}: {source}")]
    Store { path: PathBuf, source: std::io::Error },
}

/// What is wrong with a certificate that the cluster signed.
#[derive(Debug, thiserror::Error)]
pub enum UnusableCertificate {
    #[error("it is not base64: {0}")]
    Encoding(#[from] base64::DecodeError),
    #[error(transparent)]
    Pem(#[from] CertificateError),
    #[error("the file has no certificate")]
    Empty,
    #[error("it is not an X.509 certificate")]
    Malformed,
    #[error("it is not for this node")]
    OtherNode,
    #[error("it is not for the key of this node")]
    OtherKey,
    #[error("it has expired")]
    Expired,
}

/// What a signer is asked for.
pub struct Purpose {
    pub signer: &'static str,
    pub usages: [&'static str; 2],
}

/// The certificate that the cluster signs, as PEM.
pub async fn ask(client: &Client, purpose: &Purpose, request: &str) -> Result<Vec<u8>, RequestError> {
    let requests = client.resource(&CERTIFICATE_SIGNING_REQUEST);
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": BASE64.encode(request), "signerName": purpose.signer, "usages": purpose.usages,
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
            let decoded = BASE64.decode(certificate).map_err(UnusableCertificate::from);
            return Ok(decoded?);
        }
        if begun.elapsed() > PATIENCE {
            break;
        }
    }
    Err(RequestError::TooLate(name))
}

/// When a certificate of this node is to be replaced; none when it is over already.
pub fn renewal(validity: &Validity, node_name: &str, now: Moment) -> Option<Moment> {
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let spread = node_name.bytes().map(i64::from).sum::<i64>() % RENEWAL_SPREAD;
    let due = from + (to - from) * (RENEWAL_PERCENT + spread) / 100;
    (now < Moment(to * 1000)).then_some(Moment(due * 1000))
}

fn is_refused(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut kinds = conditions.filter_map(|condition| condition["type"].as_str());
    kinds.any(|kind| matches!(kind, "Denied" | "Failed"))
}

/// Replaces the file in one step; it is never readable by others.
pub fn store(path: PathBuf, certificate: &[u8], key: &[u8]) -> Result<(), RequestError> {
    let written = write_private(&path, &[certificate, key].concat());
    written.map_err(|source| RequestError::Store { path, source })
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
