use std::convert::Infallible;

use expect_test::expect;
use http::Response;
use hyper::service::service_fn;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A cluster with one Service, or none.
struct Services(Option<u16>);

impl ServiceResolver for Services {
    fn resolve(&self, _namespace: &str, name: &str, _port: u16) -> Result<(String, u16), String> {
        let port = self.0.ok_or_else(|| format!("service {name:?} not found"))?;
        Ok(("127.0.0.1".to_owned(), port))
    }

    /// Whatever these tests serve on is this machine's.
    fn check(&self, _address: SocketAddr, _origin: Origin) -> Result<(), DestinationError> {
        Ok(())
    }
}

/// A cluster whose EndpointSlices are written by somebody who wants to be connected to this address.
struct Led(&'static str, u16);

impl ServiceResolver for Led {
    fn resolve(&self, _namespace: &str, _name: &str, _port: u16) -> Result<(String, u16), String> {
        Ok((self.0.to_owned(), self.1))
    }
}

/// Serves on loopback with a certificate of its own making; the port and the certificate as `caBundle`.
async fn serve(answer: fn(&str) -> (u16, &'static str)) -> (u16, String) {
    let key = KeyPair::generate().unwrap();
    let names = ["hook.ns.svc".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(move |request: Request<hyper::body::Incoming>| async move {
                    let path = request.uri().path().to_owned();
                    if path == "/slow" {
                        std::future::pending::<()>().await;
                    }
                    let (code, body) = answer(request.uri().path_and_query().unwrap().as_str());
                    let response = Response::builder()
                        .status(code)
                        .body(Full::new(Bytes::from_static(body.as_bytes())));
                    Ok::<_, Infallible>(response.unwrap())
                });
                let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                drop(served.await);
            });
        }
    });
    (
        port,
        base64::engine::general_purpose::STANDARD.encode(certificate.pem()),
    )
}

async fn call(config: Value, services: Services, timeout: Duration) -> Result<Bytes, String> {
    let webhook = Webhook::new(&config).map_err(|error| error.to_string())?;
    let answer = webhook.post(&services, Bytes::from_static(b"{}"), timeout).await;
    answer.map_err(|error| error.to_string())
}

fn of_service(path: &str, bundle: &str) -> Value {
    json!({ "service": { "namespace": "ns", "name": "hook", "path": path, "port": 443 }, "caBundle": bundle })
}

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_service_is_reached_at_its_endpoint_under_its_name() {
    let (port, bundle) = serve(|path| match path {
        "/ok?timeout=10s" => (200, "fine"),
        "/broken?timeout=10s" => (500, "oh no"),
        _ => (404, ""),
    })
    .await;
    let answer = |path: &'static str| call(of_service(path, &bundle), Services(Some(port)), LONG);
    assert_eq!(answer("/ok").await.unwrap(), "fine");
    expect![[r#"failed to call webhook: an error on the server ("oh no") has prevented the request from succeeding"#]]
        .assert_eq(&answer("/broken").await.unwrap_err());
    expect!["failed to call webhook: the server could not find the requested resource"]
        .assert_eq(&answer("none").await.unwrap_err());
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let (port, bundle) = serve(|_| (200, "fine")).await;
    let webhook = Webhook::new(&of_service("/", &bundle)).unwrap();
    for _ in 0..3 {
        webhook.post(&Services(Some(port)), Bytes::new(), LONG).await.unwrap();
        assert_eq!(webhook.idle.lock().len(), 1);
    }
}

#[tokio::test]
async fn what_fails_is_said_as_go_says_it() {
    let (port, bundle) = serve(|_| (200, "fine")).await;
    expect![[r#"failed to call webhook: Post "https://hook.ns.svc:443/?timeout=10s": service "hook" not found"#]]
        .assert_eq(&call(of_service("", &bundle), Services(None), LONG).await.unwrap_err());
    let short = Duration::from_secs(1);
    expect![[r#"failed to call webhook: Post "https://hook.ns.svc:443/slow?timeout=1s": context deadline exceeded"#]]
        .assert_eq(
            &call(of_service("/slow", &bundle), Services(Some(port)), short)
                .await
                .unwrap_err(),
        );

    let url = json!({ "url": format!("https://127.0.0.1:{port}/x"), "caBundle": bundle });
    assert_eq!(call(url, Services(None), LONG).await.unwrap(), "fine");

    let (_, other_bundle) = serve(|_| (200, "")).await;
    expect![[r#"failed to call webhook: Post "https://hook.ns.svc:443/?timeout=10s": tls: failed to verify certificate: x509: certificate signed by unknown authority"#]]
        .assert_eq(&call(of_service("", &other_bundle), Services(Some(port)), LONG).await.unwrap_err());
    expect![[r#"could not get REST client: the URL "http://x/" must be https and name a host"#]].assert_eq(
        &call(json!({ "url": "http://x/" }), Services(None), LONG)
            .await
            .unwrap_err(),
    );
}

#[tokio::test]
async fn an_endpoint_on_loopback_is_not_connected_to() {
    let (port, bundle) = serve(|_| (200, "fine")).await;
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "localhost", "127.1"] {
        let webhook = Webhook::new(&of_service("/", &bundle)).unwrap();
        let refused = webhook.post(&Led(address, port), Bytes::new(), LONG).await.unwrap_err();
        assert!(
            refused.to_string().contains("address not allowed: "),
            "{address}: {refused}"
        );
    }
}

/// Names are resolved by whoever answers for them; `localhost` is the machine's own name and no answer of anybody.
#[test]
fn an_administrators_url_is_taken_at_its_word_and_a_name_is_not() {
    let origin = |url: &str| Address::parse(&json!({ "url": url })).unwrap().origin();
    for url in ["https://127.0.0.1:9443/x", "https://[::1]/x", "https://localhost:8443"] {
        assert_eq!(origin(url), Origin::Literal, "{url}");
    }
    for url in [
        "https://hook.example.com",
        "https://127.1/x",
        "https://localhost.example.com",
    ] {
        assert_eq!(origin(url), Origin::Name, "{url}");
    }
    let service = Address::parse(&of_service("/", "")).unwrap();
    assert_eq!(service.origin(), Origin::Object);
}
