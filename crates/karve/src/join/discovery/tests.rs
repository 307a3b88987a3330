use std::convert::Infallible;
use std::sync::Arc;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::hmac;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::layout::Layout;
use crate::pki::{Authority, Identity};
use crate::tls::{self, Clients};

const TOKEN: &str = "abcdef.0123456789abcdef";

struct Cluster {
    authority: Authority,
    identity: Identity,
    _directory: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "test".to_owned(),
            root: directory.path().to_owned(),
        };
        layout.create().unwrap();
        let authority = Authority::open(&layout).unwrap();
        let identity = authority
            .server("kube-apiserver", &["localhost"], &["127.0.0.1".parse().unwrap()])
            .unwrap();
        Cluster {
            authority,
            identity,
            _directory: directory,
        }
    }

    fn hash(&self) -> AuthorityHash {
        let der = tls::certificates(&self.authority.certificate_pem).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&der[0]).unwrap();
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate.public_key().raw);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}").parse().unwrap()
    }

    fn kubeconfig(&self) -> String {
        let authority = STANDARD.encode(&self.authority.certificate_pem);
        format!("clusters:\n- cluster: {{certificate-authority-data: {authority}, server: x}}\n  name: ''\n")
    }
}

fn info(kubeconfig: &str, secret: &str) -> Value {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"abcdef"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(kubeconfig));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mac = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    json!({"data": {"kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": format!("{header}..{mac}")}})
}

/// A server that shows this identity and says this, the second time perhaps something else.
async fn serve(identity: &Identity, answers: Vec<(u16, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = TlsAcceptor::from(Arc::new(tls::server(identity, &Clients::Unknown).unwrap()));
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let (code, body) = answers[connections.min(answers.len() - 1)].clone();
            connections += 1;
            tokio::spawn(async move {
                let service = service_fn(|_| {
                    let mut response = Response::new(Full::new(Bytes::from(body.clone())));
                    *response.status_mut() = StatusCode::from_u16(code).unwrap();
                    async move { Ok::<_, Infallible>(response) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ended = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    url
}

async fn try_with(cluster: &Cluster, identity: &Identity, answers: &[(u16, String)]) -> Result<String, String> {
    let url = serve(identity, answers.to_vec()).await;
    let found = discover(&url, &TOKEN.parse().unwrap(), &cluster.hash()).await;
    found.map_err(|error| format!("{error:#}"))
}

#[tokio::test]
async fn the_authority_is_known_by_token_and_hash() {
    let cluster = Cluster::new();
    let answer = (200, info(&cluster.kubeconfig(), "0123456789abcdef").to_string());
    let found = try_with(&cluster, &cluster.identity, &[answer]).await.unwrap();
    let parse = |pem: &str| tls::certificates(pem).unwrap();
    assert_eq!(parse(&found), parse(&cluster.authority.certificate_pem));
}

#[tokio::test]
async fn whoever_is_not_the_cluster_is_found_out() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let secret = "0123456789abcdef";
    let own = info(&cluster.kubeconfig(), secret).to_string();
    type Case<'a> = (&'a str, &'a Identity, Vec<(u16, String)>);
    let cases: [Case; 6] = [
        // Somebody who knows no token.
        (
            "its secret part is wrong",
            &cluster.identity,
            vec![(200, info(&cluster.kubeconfig(), "ffffffffffffffff").to_string())],
        ),
        // Somebody who knows the token, as all do who join with it, but is not the authority.
        (
            "its CA does not match sha256:",
            &other.identity,
            vec![(200, info(&other.kubeconfig(), secret).to_string())],
        ),
        // Somebody who repeats the cluster's word.
        ("is not signed by the CA", &other.identity, vec![(200, own.clone())]),
        // Somebody who says one thing and then another.
        (
            "inconsistent cluster information",
            &cluster.identity,
            vec![(200, own.clone()), (200, info("clusters: []", secret).to_string())],
        ),
        ("(403 Forbidden)", &cluster.identity, vec![(403, String::new())]),
        (
            "failed to parse its response",
            &cluster.identity,
            vec![(200, "x".repeat(MAX_ANSWER_BYTES + 1))],
        ),
    ];
    for (expected, identity, answers) in cases {
        let error = try_with(&cluster, identity, &answers).await.unwrap_err();
        assert!(error.contains(expected), "{error} instead of {expected}");
    }
}

#[tokio::test]
async fn a_token_that_signs_nothing_is_refused_plainly() {
    let cluster = Cluster::new();
    let unsigned = json!({"data": {"kubeconfig": cluster.kubeconfig()}}).to_string();
    let error = try_with(&cluster, &cluster.identity, &[(200, unsigned)])
        .await
        .unwrap_err();
    assert!(error.contains("it is wrong, has expired or was deleted"), "{error}");
    assert!(!error.contains("0123456789abcdef"), "{error}");
}
