//! Connections, as a client on the network has them.

use std::sync::Arc;
use std::time::Duration;

use apiserver::ServingTls;
use http::StatusCode;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use serde_json::json;
use serving::ConnectionLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cluster::Cluster;

const PATIENCE: Duration = Duration::from_secs(10);

/// A server on loopback.
pub struct Serving {
    address: std::net::SocketAddr,
    connector: TlsConnector,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Serving {
    async fn start(cluster: &Cluster) -> Serving {
        Serving::start_within(ConnectionLimits::default(), cluster).await
    }

    async fn start_within(limits: ConnectionLimits, cluster: &Cluster) -> Serving {
        let client = |trusted| client_builder(trusted).with_no_client_auth();
        Serving::start_with(limits, cluster, RootCertStore::empty(), client).await
    }

    /// With clients that a certificate of some authority names. `client` is told whom it can trust.
    pub async fn start_for(
        cluster: &Cluster,
        client_authorities: RootCertStore,
        client: impl FnOnce(RootCertStore) -> ClientConfig,
    ) -> Serving {
        Serving::start_with(ConnectionLimits::default(), cluster, client_authorities, client).await
    }

    async fn start_with(
        limits: ConnectionLimits,
        cluster: &Cluster,
        client_authorities: RootCertStore,
        client: impl FnOnce(RootCertStore) -> ClientConfig,
    ) -> Serving {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = certificate.self_signed(&key).expect("a certificate");
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.der().clone()).expect("an authority");
        let tls = ServingTls {
            certificates: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            client_authorities,
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = watch::channel(false);
        let tls = tls.config().expect("a configuration");
        Serving {
            address,
            connector: TlsConnector::from(Arc::new(client(trusted))),
            task: tokio::spawn(apiserver::serve_within(
                limits,
                cluster.server(),
                listener,
                tls,
                stopped,
            )),
            stop,
        }
    }

    pub async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let name = ServerName::try_from("localhost").expect("a name");
        self.connector.connect(name, stream).await.expect("a handshake")
    }
}

pub fn client_builder(trusted: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocols are known")
        .with_root_certificates(trusted)
}

/// Everything up to the end of the connection.
pub async fn read_all(stream: &mut TlsStream<TcpStream>) -> String {
    let mut read = Vec::new();
    // Whether the end is announced is the peer's affair.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an end");
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_lets_a_running_request_finish_and_takes_no_new_ones() {
    let cluster = Cluster::start().await;
    let binding = json!({
        "metadata": {"name": "everybody"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(cluster.post(bindings, &binding).await.0, StatusCode::CREATED);
    cluster
        .as_user("system:anonymous")
        .get_until_allowed("/api/v1/pods")
        .await;
    let serving = Serving::start(&cluster).await;
    let mut idle = serving.connect().await;
    let mut running = serving.connect().await;
    let body = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
    let head = format!(
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    running.write_all(head.as_bytes()).await.expect("a head");
    // The server asks for the body, so it is in the middle of the request.
    let mut asked = [0; 25];
    let read = timeout(PATIENCE, running.read_exact(&mut asked))
        .await
        .expect("in time");
    read.expect("an answer");
    assert!(
        asked.starts_with(b"HTTP/1.1 100"),
        "{}",
        String::from_utf8_lossy(&asked)
    );
    serving.stop.send_replace(true);
    assert_eq!(read_all(&mut idle).await, "", "an idle connection is closed");
    assert!(!serving.task.is_finished(), "somebody is still being answered");
    running.write_all(body.as_bytes()).await.expect("a body");
    let answer = read_all(&mut running).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let ended = timeout(PATIENCE, serving.task).await.expect("serving ends");
    ended.expect("no panic").expect("no failure");
    assert!(
        TcpStream::connect(serving.address).await.is_err(),
        "nobody listens any more"
    );
}

/// Sends a request with a header of so many bytes, and returns the first line of the answer.
async fn status_line_with_header(serving: &Serving, name: &str, bytes: usize) -> String {
    let mut stream = serving.connect().await;
    let head = format!(
        "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{name}: {}\r\n\r\n",
        "a".repeat(bytes)
    );
    // The server may answer, and close, before it has read everything.
    let _ = stream.write_all(head.as_bytes()).await;
    let answer = read_all(&mut stream).await;
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_as_large_as_upstream_takes_them_and_no_larger() {
    let cluster = Cluster::start().await;
    let serving = Serving::start(&cluster).await;
    let fits = status_line_with_header(&serving, "x-large", 1_000_000).await;
    assert_eq!(fits, "HTTP/1.1 200 OK");
    let too_large = status_line_with_header(&serving, "x-large", 1_200_000).await;
    assert!(
        too_large.is_empty() || too_large.starts_with("HTTP/1.1 431"),
        "{too_large}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_headers_are_read_over_http2_too() {
    let cluster = Cluster::start().await;
    let serving = Serving::start(&cluster).await;
    let stream = hyper_util::rt::TokioIo::new(serving.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), stream)
        .await
        .expect("a connection");
    tokio::spawn(connection);
    let request = http::Request::get("https://localhost/livez")
        .header("x-large", "a".repeat(100_000))
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .expect("a request");
    let answered = timeout(PATIENCE, sender.send_request(request)).await.expect("in time");
    assert_eq!(answered.expect("an answer").status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_of_unknown_clients_make_room_for_new_ones() {
    let cluster = Cluster::start().await;
    let limits = ConnectionLimits {
        unidentified_on_loopback: 2,
        ..ConnectionLimits::default()
    };
    let serving = Serving::start_within(limits, &cluster).await;
    let mut oldest = serving.connect().await;
    let _idle = serving.connect().await;
    assert!(
        status_line_with_header(&serving, "x-small", 1)
            .await
            .starts_with("HTTP/1.1 200"),
        "a new client is served"
    );
    assert_eq!(read_all(&mut oldest).await, "", "the oldest connection was closed");
}

/// What a browser sends to watch, but for who it says it is.
fn watch_socket(path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_over_a_websocket_has_a_message_for_each_event() {
    let cluster = Cluster::start().await;
    let binding = json!({
        "metadata": {"name": "everybody"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(cluster.post(bindings, &binding).await.0, StatusCode::CREATED);
    cluster
        .as_user("system:anonymous")
        .get_until_allowed("/api/v1/pods")
        .await;
    let serving = Serving::start(&cluster).await;
    let path = "/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Ddefault&timeoutSeconds=1";
    let mut stream = serving.connect().await;
    let request = watch_socket(path, "origin: http://localhost\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
    let (_, messages) = answer.split_once("\r\n\r\n").expect("an end of the head");
    assert!(messages.contains("{\"type\":\"ADDED\",\"object\":{"), "{messages}");
    assert_eq!(messages.matches("\"type\":\"ADDED\"").count(), 1, "{messages}");
    // Only what a browser could have sent is answered, and nobody chooses among several subprotocols.
    for (headers, code) in [
        ("", "HTTP/1.1 403 "),
        (
            "origin: http://localhost\r\nsec-websocket-protocol: a, b\r\n",
            "HTTP/1.1 400 ",
        ),
    ] {
        let mut stream = serving.connect().await;
        let request = watch_socket(path, &format!("{headers}connection: close\r\n"));
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = vec![0; code.len()];
        timeout(PATIENCE, stream.read_exact(&mut answer))
            .await
            .expect("in time")
            .expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), code);
    }
}
