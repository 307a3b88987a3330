//! The transport over TLS against a server made with hyper: protocols, credentials, reconnection and upgrades.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use client::{Client, Config, HttpTransport, Source, Token, Transport, Upgrade};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A certificate authority with a certificate for the server and one for the client.
struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
    authority: String,
    server: (String, KeyPair),
    client: (String, KeyPair),
}

struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

fn pki() -> Pki {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key).unwrap();
    Pki {
        server: issue(&authority, "127.0.0.1"),
        client: issue(&authority, "admin"),
        authority: authority.pem(),
        issuer: authority,
    }
}

fn issue(authority: &CertifiedIssuer<'static, KeyPair>, name: &str) -> (String, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (certificate.signed_by(&key, authority).unwrap().pem(), key)
}

impl Pki {
    fn renew(&self) -> (String, KeyPair) {
        issue(&self.issuer, "admin")
    }
}

fn config(pki: &Pki, address: SocketAddr) -> Config {
    let data = |text: &str| Source::Data(text.as_bytes().to_vec());
    Config {
        server: format!("https://{address}"),
        certificate_authority: Some(data(&pki.authority)),
        client_certificate: Some((data(&pki.client.0), data(&pki.client.1.serialize_pem()))),
        token: Some(Token::Text("secret".to_owned())),
        ..Config::default()
    }
}

fn server_config(pki: &Pki, protocols: &[&str]) -> ServerConfig {
    let certificates = |pem: &str| {
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        certificates.unwrap()
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&pki.authority));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = PrivateKeyDer::from_pem_slice(pki.server.1.serialize_pem().as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(certificates(&pki.server.0), key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

async fn serve(pki: &Pki, protocols: &[&str], address: &str) -> Server {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server_config(pki, protocols)));
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    let task = tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            counter.fetch_add(1, Ordering::Relaxed);
            open.spawn(async move {
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let service = service_fn(|request| async { Ok::<_, hyper::Error>(answer(request)) });
                let served = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
                // Connections end with the test.
                let _ = served.await;
            });
        }
    });
    Server {
        address,
        connections,
        task,
    }
}

/// Answers with what it saw of the request; `/upgrade` becomes an echo.
fn answer(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().path() == "/upgrade" {
        tokio::spawn(async move {
            let mut stream = TokioIo::new(hyper::upgrade::on(&mut request).await.unwrap());
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
        });
        let switched = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let switched = switched
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, "echo");
        return switched.body(Full::default()).unwrap();
    }
    let authorization = request.headers().get(header::AUTHORIZATION).unwrap().to_str().unwrap();
    let text = format!("{:?} {} {authorization}", request.version(), request.uri().path());
    Response::new(Full::new(Bytes::from(text)))
}

async fn get(client: &Client, path: &str) -> client::Result<String> {
    let request = Request::get(path).body(Bytes::new()).unwrap();
    let body = client.fetch(request).await?;
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn http2_is_preferred_and_one_connection_serves_all() {
    let pki = pki();
    let server = serve(&pki, &["h2", "http/1.1"], "127.0.0.1:0").await;
    let client = Client::connect(config(&pki, server.address)).unwrap();
    let answers = futures_util::future::join_all((0..20).map(|_| get(&client, "/version"))).await;
    for answer in answers {
        assert_eq!(answer.unwrap(), "HTTP/2.0 /version Bearer secret");
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    server.task.abort();
}

#[tokio::test]
async fn http1_connections_are_used_again() {
    let pki = pki();
    let server = serve(&pki, &["http/1.1"], "127.0.0.1:0").await;
    let client = Client::connect(config(&pki, server.address)).unwrap();
    for _ in 0..5 {
        let answer = get(&client, "/version").await.unwrap();
        assert_eq!(answer, "HTTP/1.1 /version Bearer secret");
        // The connection goes back to the pool in the background.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    server.task.abort();
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_again() {
    let pki = pki();
    let server = serve(&pki, &["h2"], "127.0.0.1:0").await;
    let client = Client::connect(config(&pki, server.address)).unwrap();
    get(&client, "/version").await.unwrap();
    server.task.abort();
    let _ = server.task.await;
    assert!(get(&client, "/version").await.is_err());
    let server = serve(&pki, &["h2"], &server.address.to_string()).await;
    get(&client, "/version").await.unwrap();
    server.task.abort();
}

#[tokio::test]
async fn an_upgrade_gives_the_connection_to_the_caller() {
    let pki = pki();
    let server = serve(&pki, &["h2", "http/1.1"], "127.0.0.1:0").await;
    let transport = HttpTransport::new(config(&pki, server.address)).unwrap();
    let request = Request::get("/upgrade")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "echo");
    let Upgrade::Open(parts, mut stream) = transport.upgrade(request.body(Bytes::new()).unwrap()).await.unwrap() else {
        panic!("the server refused");
    };
    assert_eq!(parts.status, StatusCode::SWITCHING_PROTOCOLS);
    stream.write_all(b"ping").await.unwrap();
    let mut word = [0; 4];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"ping");

    let refused = transport
        .upgrade(Request::get("/other").body(Bytes::new()).unwrap())
        .await;
    let Upgrade::Refused(answer) = refused.unwrap() else {
        panic!("the server must not switch");
    };
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], b"HTTP/1.1 /other Bearer secret");
    server.task.abort();
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_talked_to() {
    let (ours, theirs) = (pki(), pki());
    let server = serve(&theirs, &["h2"], "127.0.0.1:0").await;
    let client = Client::connect(config(&ours, server.address)).unwrap();
    let error = get(&client, "/version").await.unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");
    server.task.abort();
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_by_new_connections() {
    let (mut pki, directory) = (pki(), tempfile::tempdir().unwrap());
    let server = serve(&pki, &["h2"], "127.0.0.1:0").await;
    let path = directory.path().join("client.pem");
    let write = |(certificate, key): &(String, KeyPair)| {
        std::fs::write(&path, format!("{certificate}{}", key.serialize_pem())).unwrap();
    };
    write(&pki.client);
    let client = Client::connect(Config {
        client_certificate: Some((Source::File(path.clone()), Source::File(path.clone()))),
        ..config(&pki, server.address)
    })
    .unwrap();
    let connections = async || {
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        get(&client, "/version").await.unwrap();
        server.connections.load(Ordering::Relaxed)
    };
    assert_eq!(
        (connections().await, connections().await),
        (1, 1),
        "nothing has changed"
    );
    pki.client = pki.renew();
    write(&pki.client);
    assert_eq!(connections().await, 2);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(connections().await, 2, "without a file the connection stays");
    server.task.abort();
}
