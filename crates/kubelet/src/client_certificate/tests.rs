use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use api::Value;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use client::{Body, Transport, TransportError, body_from_bytes};
use http::{Method, Request, Response};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateSigningRequestParams, IsCa, Issuer};
use serde_json::json;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// An API server that signs everything, for this long, for the node `named` if it is not the one that asks.
struct Cluster {
    issuer: Issuer<'static, KeyPair>,
    lifetime: Duration,
    named: Option<&'static str>,
    asked: Mutex<Vec<Value>>,
}

impl Cluster {
    fn new(lifetime: Duration, named: Option<&'static str>) -> Arc<Cluster> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Arc::new(Cluster {
            issuer: Issuer::new(params, KeyPair::generate().unwrap()),
            lifetime,
            named,
            asked: Mutex::default(),
        })
    }

    fn certificate(&self) -> String {
        let asked = self.asked.lock();
        let request = asked[asked.len() - 1]["spec"]["request"].as_str().unwrap();
        let pem = String::from_utf8(BASE64.decode(request).unwrap()).unwrap();
        let mut request = CertificateSigningRequestParams::from_pem(&pem).unwrap();
        let now = time::OffsetDateTime::now_utc();
        request.params.not_before = now;
        request.params.not_after = now + self.lifetime;
        if let Some(named) = self.named {
            request.params.distinguished_name.push(DnType::CommonName, named);
        }
        BASE64.encode(request.signed_by(&self.issuer).unwrap().pem())
    }
}

#[async_trait]
impl Transport for Cluster {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let answer = match *request.method() {
            Method::POST => {
                self.asked.lock().push(serde_json::from_slice(request.body()).unwrap());
                json!({"metadata": {"name": "csr-1"}})
            }
            _ => json!({"metadata": {"name": "csr-1"}, "status": {"certificate": self.certificate()}}),
        };
        Ok(Response::new(body_from_bytes(answer.to_string().into())))
    }
}

fn wish(directory: &tempfile::TempDir) -> ClientCertificate {
    ClientCertificate {
        node_name: "one".to_owned(),
        directory: directory.path().to_owned(),
    }
}

#[tokio::test]
async fn a_certificate_is_asked_for_kept_and_replaced_before_it_expires() {
    let (cluster, directory) = (Cluster::new(10 * DAY, None), tempfile::tempdir().unwrap());
    let wish = wish(&directory);
    assert!(!wish.is_usable());
    wish.obtain(&Client::new(cluster.clone())).await.unwrap();
    let spec = cluster.asked.lock()[0]["spec"].clone();
    assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(spec["usages"], json!(["digital signature", "client auth"]));
    let mode = fs::metadata(wish.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let now = Moment::now();
    let due = wish.due(now).unwrap();
    assert!(due > now.plus(6 * DAY) && due < now.plus(9 * DAY), "{due:?}");
    assert!(wish.due(now.plus(8 * DAY)).is_some_and(|due| due < now.plus(9 * DAY)));
    assert!(wish.due(now.plus(11 * DAY)).is_none(), "it is over");
}

#[tokio::test]
async fn a_certificate_that_is_due_is_replaced_while_the_node_runs() {
    let (cluster, directory) = (Cluster::new(Duration::from_secs(3), None), tempfile::tempdir().unwrap());
    let keeping = wish(&directory).keep(Client::new(cluster.clone()));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    let enough = async {
        while cluster.asked.lock().len() < 3 {
            assert!(tokio::time::Instant::now() < deadline, "it is not replaced");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = keeping => unreachable!("it is kept for ever"),
        () = enough => {}
    }
    assert!(wish(&directory).path().exists());
}

#[tokio::test]
async fn what_is_for_somebody_else_is_neither_kept_nor_used() {
    let directory = tempfile::tempdir().unwrap();
    let liar = Cluster::new(10 * DAY, Some("system:node:two"));
    let error = wish(&directory).obtain(&Client::new(liar)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the certificate cannot be used: it is not for this node"
    );
    assert!(!wish(&directory).path().exists());

    wish(&directory)
        .obtain(&Client::new(Cluster::new(10 * DAY, None)))
        .await
        .unwrap();
    let other = ClientCertificate {
        node_name: "two".to_owned(),
        ..wish(&directory)
    };
    assert!(!other.is_usable());
    fs::write(wish(&directory).path(), "nonsense").unwrap();
    assert!(!wish(&directory).is_usable());
}
