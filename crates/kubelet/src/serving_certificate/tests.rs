use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use client::{Body, Transport, TransportError, body_from_bytes};
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose,
};
use serde_json::json;

use super::*;

/// An API server that decides about requests in one way.
struct Cluster {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    decision: Decision,
    asked: Mutex<Vec<Value>>,
}

#[derive(Clone, Copy)]
enum Decision {
    Sign,
    Deny,
    /// Signs for somebody else.
    Mistake,
}

impl Cluster {
    fn new(decision: Decision) -> Arc<Cluster> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Arc::new(Cluster {
            issuer: Issuer::new(params, key),
            certificate,
            decision,
            asked: Mutex::default(),
        })
    }

    fn status(&self) -> Value {
        let asked = self.asked.lock();
        let request = BASE64
            .decode(asked[asked.len() - 1]["spec"]["request"].as_str().unwrap())
            .unwrap();
        let mut request = CertificateSigningRequestParams::from_pem(std::str::from_utf8(&request).unwrap()).unwrap();
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        match self.decision {
            Decision::Deny => return json!({"conditions": [{"type": "Denied", "status": "True"}]}),
            Decision::Mistake => request
                .params
                .distinguished_name
                .push(DnType::CommonName, "system:node:other"),
            Decision::Sign => {}
        }
        let certificate = request.signed_by(&self.issuer).unwrap();
        json!({"certificate": BASE64.encode(certificate.pem())})
    }
}

#[async_trait]
impl Transport for Cluster {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let path = request.uri().path();
        let answer = match (request.method(), path.rsplit('/').next()) {
            (_, Some("one")) => json!({"metadata": {"name": "one"}, "status": {"addresses": []}}),
            (&Method::POST, _) => {
                self.asked.lock().push(serde_json::from_slice(request.body()).unwrap());
                json!({"metadata": {"name": "csr-1"}})
            }
            _ => json!({"metadata": {"name": "csr-1"}, "status": self.status()}),
        };
        let mut response = Response::new(body_from_bytes(answer.to_string().into()));
        *response.status_mut() = StatusCode::OK;
        Ok(response)
    }
}

fn request(cluster: &Arc<Cluster>, directory: &Path) -> ServingRequest {
    ServingRequest {
        client: Client::new(cluster.clone()),
        node_name: "one".to_owned(),
        node_ips: vec!["203.0.113.1".parse().unwrap()],
        directory: directory.to_owned(),
        authority: Some(cluster.certificate.clone().into_bytes()),
    }
}

#[tokio::test]
async fn a_certificate_is_asked_for_kept_and_found_again() {
    let (cluster, directory) = (Cluster::new(Decision::Sign), tempfile::tempdir().unwrap());
    let shown = ServingCertificates::default();
    let request = request(&cluster, directory.path());
    assert!(request.load(&shown).is_none());
    let due = request.obtain(&shown).await.unwrap();
    assert!(due > Moment::now());
    let spec = cluster.asked.lock()[0]["spec"].clone();
    assert_eq!(spec["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(spec["usages"], json!(["digital signature", "server auth"]));
    let kept = directory.path().join(FILE);
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let again = ServingCertificates::default();
    assert_eq!(request.load(&again), Some(due));
    assert_eq!(cluster.asked.lock().len(), 1);
}

/// What is on the disk may be another cluster's, another node's, or of another address.
#[tokio::test]
async fn a_kept_certificate_that_is_not_for_this_node_is_not_shown() {
    let (cluster, directory) = (Cluster::new(Decision::Sign), tempfile::tempdir().unwrap());
    let own = || request(&cluster, directory.path());
    own().obtain(&ServingCertificates::default()).await.unwrap();
    for other in [
        ServingRequest {
            authority: Some(Cluster::new(Decision::Sign).certificate.clone().into_bytes()),
            ..own()
        },
        ServingRequest {
            node_name: "two".to_owned(),
            ..own()
        },
        ServingRequest {
            node_ips: vec!["203.0.113.2".parse().unwrap()],
            ..own()
        },
    ] {
        assert!(other.load(&ServingCertificates::default()).is_none());
    }
    let unknown = ServingRequest {
        authority: None,
        ..own()
    };
    assert!(unknown.load(&ServingCertificates::default()).is_some());
    fs::write(directory.path().join(FILE), "nonsense").unwrap();
    assert!(own().load(&ServingCertificates::default()).is_none());
}

#[tokio::test]
async fn a_refusal_and_a_certificate_for_somebody_else_are_not_used() {
    for (decision, told) in [
        (
            Decision::Deny,
            "CertificateSigningRequest csr-1 was denied or failed; see kubectl describe csr csr-1",
        ),
        (
            Decision::Mistake,
            "the certificate cannot be used: it is not for this node",
        ),
    ] {
        let (cluster, directory) = (Cluster::new(decision), tempfile::tempdir().unwrap());
        let request = request(&cluster, directory.path());
        let error = request.obtain(&ServingCertificates::default()).await.unwrap_err();
        assert_eq!(error.to_string(), told);
        assert!(!directory.path().join(FILE).exists());
    }
}
