//! A webhook that converts between versions, and what it is asked.

use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{FOOS, definition, established_with, foo};

const FOOS_V2: &str = "/apis/example.com/v2/namespaces/default/foos";

/// How many objects each review had.
type Reviews = Arc<Mutex<Vec<usize>>>;

/// Answers a review: whatever version is asked for, its objects are colored blue.
fn convert(review: &Value, reviews: &Reviews) -> Value {
    let request = &review["request"];
    let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
    reviews.lock().push(objects.len());
    for object in &mut objects {
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        object["spec"]["color"] = "blue".into();
    }
    json!({
        "apiVersion": review["apiVersion"], "kind": review["kind"],
        "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    })
}

/// Serves on loopback; returns the webhook's `clientConfig` and what it is asked.
async fn serve() -> (Value, Reviews) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/convert", listener.local_addr().unwrap());
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let reviews = Reviews::default();
    let seen = reviews.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), seen.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let seen = seen.clone();
                    async move {
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let answer = convert(&serde_json::from_slice(&body).unwrap(), &seen);
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
                    }
                });
                let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                drop(served.await);
            });
        }
    });
    let bundle = base64::engine::general_purpose::STANDARD.encode(certificate.pem());
    (json!({"url": url, "caBundle": bundle}), reviews)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_converted_by_one_request() {
    let (config, reviews) = serve().await;
    let mut definition = definition();
    definition["spec"]["conversion"] = json!({
        "strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
    });
    let cluster = established_with(&definition).await;
    for name in ["a", "b", "c"] {
        let (code, answer) = cluster.post(FOOS, &foo(name, json!({"color": "red"}))).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
    }
    assert_eq!(
        *reviews.lock(),
        [0; 0],
        "they are stored in the version that they came in"
    );
    let (code, list) = cluster.get(FOOS_V2).await;
    assert_eq!(code, StatusCode::OK, "{list}");
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    for item in items {
        assert_eq!(item["apiVersion"], "example.com/v2");
        assert_eq!(item["spec"]["color"], "blue");
    }
    assert_eq!(*reviews.lock(), [3]);
    // The same state converts to the same result; only what is new is asked about.
    cluster.post(FOOS, &foo("d", json!({"color": "red"}))).await;
    let (_, list) = cluster.get(&format!("{FOOS_V2}?limit=10")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(4));
    assert_eq!(*reviews.lock(), [3, 1]);
}
