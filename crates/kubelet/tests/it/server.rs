//! Who gets an answer on port 10250. Needs neither root nor a container runtime.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{Runtime, v1};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use kubelet::{
    Access, AuthError, Authenticator, Authorizer, Kubelet, KubeletOptions, ServerOptions, ServingCertificate, User,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::api::FakeApi;

/// A runtime that runs nothing.
struct Idle;

#[async_trait]
impl Runtime for Idle {
    async fn version(&self, _: v1::VersionRequest) -> cri::Result<v1::VersionResponse> {
        Ok(v1::VersionResponse::default())
    }

    async fn list_pod_sandbox(&self, _: v1::ListPodSandboxRequest) -> cri::Result<v1::ListPodSandboxResponse> {
        Ok(v1::ListPodSandboxResponse::default())
    }

    async fn list_containers(&self, _: v1::ListContainersRequest) -> cri::Result<v1::ListContainersResponse> {
        Ok(v1::ListContainersResponse::default())
    }
}

/// Knows the token `good` as `carol`.
struct Tokens;

#[async_trait]
impl Authenticator for Tokens {
    async fn authenticate(&self, token: &str) -> Result<Option<User>, AuthError> {
        let carol = User {
            name: "carol".to_owned(),
            ..User::default()
        };
        Ok((token == "good").then_some(carol))
    }
}

/// Lets members of `readers` get anything but the proxy, and carol nothing.
struct Readers;

#[async_trait]
impl Authorizer for Readers {
    async fn authorize(&self, user: &User, access: &Access) -> Result<bool, AuthError> {
        let reader = user.groups.iter().any(|group| group == "readers");
        Ok(reader && access.verb == "get" && access.subresource != "proxy" && access.node == "n1")
    }
}

struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        Authority {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    fn sign(&self, names: &[&str], subject: &[(DnType, &str)]) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        (params.signed_by(&key, &self.issuer).expect("a certificate"), key)
    }
}

struct Node {
    _kubelet: Kubelet,
    directory: tempfile::TempDir,
    authority: Authority,
    address: SocketAddr,
}

impl Drop for Node {
    fn drop(&mut self) {
        crate::node::unmount_below(self.directory.path());
    }
}

impl Node {
    async fn start() -> Node {
        let authority = Authority::new();
        let (certificate, key) = authority.sign(&["127.0.0.1"], &[]);
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let directory = tempfile::tempdir().expect("a directory");
        let mut options = KubeletOptions::new(FakeApi::new().client(), Arc::new(Idle), "n1");
        options.root_dir = directory.path().join("k");
        options.pod_logs_dir = directory.path().join("logs");
        options.server = Some(ServerOptions {
            address,
            certificate: ServingCertificate::Given {
                chain: certificate.pem().into_bytes(),
                key: key.serialize_pem().into_bytes(),
            },
            client_ca: Some(authority.certificate.pem().into_bytes()),
            authenticator: Some(Arc::new(Tokens)),
            authorizer: Arc::new(Readers),
        });
        let kubelet = Kubelet::start(options).await.expect("the kubelet starts");
        Node {
            _kubelet: kubelet,
            directory,
            authority,
            address,
        }
    }

    fn reader(&self) -> (rcgen::Certificate, KeyPair) {
        let subject = [(DnType::CommonName, "alice"), (DnType::OrganizationName, "readers")];
        self.authority.sign(&[], &subject)
    }

    async fn connect(
        &self,
        identity: Option<(rcgen::Certificate, KeyPair)>,
        protocols: &[&[u8]],
    ) -> Option<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from(certificate.der().to_vec())];
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("an identity")
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let name = ServerName::from(self.address.ip());
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.ok()
    }

    /// What a client with these credentials is answered; none if it is not even listened to.
    async fn get(
        &self,
        path: &str,
        identity: Option<(rcgen::Certificate, KeyPair)>,
        token: &str,
    ) -> Option<(u16, String)> {
        let stream = self.connect(identity, &[]).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let mut request = http::Request::get(path).header("host", "n1");
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Empty::<bytes::Bytes>::new()).expect("a request");
        let answer = sender.send_request(request).await.ok()?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some((code, String::from_utf8_lossy(&body).into_owned()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_are_known_and_may_are_answered() {
    let node = Node::start().await;
    let reader = || node.reader();
    let other = || node.authority.sign(&[], &[(DnType::CommonName, "bob")]);
    let code = |answer: Option<(u16, String)>| answer.map(|(code, _)| code);

    assert_eq!(
        node.get("/healthz", Some(reader()), "").await,
        Some((200, "ok".to_owned()))
    );
    let pods = node.get("/pods", Some(reader()), "").await.map(|(_, body)| body);
    let pods: BTreeMap<String, serde_json::Value> = serde_json::from_str(&pods.unwrap_or_default()).expect("a list");
    assert_eq!(pods["kind"], "PodList");

    assert_eq!(code(node.get("/healthz", None, "").await), Some(401));
    assert_eq!(code(node.get("/healthz", None, "wrong").await), Some(401));
    let refused = node.get("/healthz", None, "good").await;
    let message = "Forbidden (user=carol, verb=get, resource=nodes, subresource(s)=[healthz proxy])";
    assert_eq!(refused, Some((403, message.to_owned())));
    assert_eq!(code(node.get("/pods", Some(other()), "").await), Some(403));
    assert_eq!(
        code(
            node.get("/exec/ns/pod/main?command=sh&output=1", Some(reader()), "")
                .await
        ),
        Some(403)
    );
    assert_eq!(code(node.get("/debug/marks", Some(reader()), "").await), Some(403));

    let stranger = Authority::new();
    let forged = stranger.sign(
        &[],
        &[(DnType::CommonName, "alice"), (DnType::OrganizationName, "readers")],
    );
    assert_eq!(
        node.get("/healthz", Some(forged), "").await,
        None,
        "a foreign certificate ends the connection"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_pods_are_for_root_and_its_group() {
    use std::os::unix::fs::PermissionsExt;
    let node = Node::start().await;
    for name in ["k", "k/pods", "logs"] {
        let mode = std::fs::metadata(node.directory.path().join(name))
            .expect("a directory")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o750, "{name}");
    }
}

/// Thousands of clients that open connections and say nothing, or too little, keep nobody else from being answered.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_are_in_nobodys_way() {
    let node = Node::start().await;
    let mut silent = Vec::new();
    for number in 0..3000 {
        let mut stream = TcpStream::connect(node.address).await.expect("a connection");
        // Some begin a handshake and leave it there.
        if number % 3 == 0 {
            let _ = stream.write_all(&[0x16, 0x03, 0x01]).await;
        }
        silent.push(stream);
    }
    let mut slow = Vec::new();
    for _ in 0..200 {
        let Some(mut stream) = node.connect(None, &[b"http/1.1"]).await else {
            continue;
        };
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n1\r\nX-Slow: ").await;
        slow.push(stream);
    }
    let answer = tokio::time::timeout(Duration::from_secs(20), node.get("/healthz", Some(node.reader()), ""));
    assert_eq!(answer.await.expect("an answer in time"), Some((200, "ok".to_owned())));
    let mut open = 0;
    for stream in &silent {
        // What was closed says so at once; what is still open has nothing to say.
        match stream.try_read(&mut [0; 1]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => open += 1,
            _ => {}
        }
    }
    assert!(open <= 512, "{open} silent connections are still open");
}

/// A client that was let in stays, however many strangers come.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_do_not_push_out_those_who_were_let_in() {
    let node = Node::start().await;
    let stream = node.connect(Some(node.reader()), &[]).await.expect("a connection");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("a connection");
    tokio::spawn(connection);
    let request = || {
        http::Request::get("/healthz")
            .header("host", "n1")
            .body(Empty::<bytes::Bytes>::new())
    };
    let answer = sender
        .send_request(request().expect("a request"))
        .await
        .expect("an answer");
    answer.into_body().collect().await.expect("a body");
    let mut silent = Vec::new();
    for _ in 0..1000 {
        silent.push(TcpStream::connect(node.address).await.expect("a connection"));
    }
    let answer = sender
        .send_request(request().expect("a request"))
        .await
        .expect("the same connection");
    assert_eq!(answer.status(), 200);
}

/// CVE-2023-44487: requests that are taken back at once, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_end_the_connection() {
    let node = Node::start().await;
    let stream = node.connect(None, &[b"h2"]).await.expect("a connection");
    let (mut reader, mut writer) = tokio::io::split(stream);
    let attack = tokio::spawn(async move {
        writer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        writer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
        for stream in (1..400_000_u32).step_by(2) {
            let id = stream.to_be_bytes();
            // GET / with only indexed headers and a short authority, ended at once, then RST_STREAM with CANCEL.
            let headers = [0x82, 0x84, 0x87, 0x41, 0x01, b'x'];
            let mut frames = vec![0, 0, headers.len() as u8, 1, 5];
            frames.extend(id);
            frames.extend(headers);
            frames.extend([0, 0, 4, 3, 0]);
            frames.extend(id);
            frames.extend([0, 0, 0, 8]);
            writer.write_all(&frames).await?;
        }
        std::io::Result::Ok(())
    });
    let mut answers = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), reader.read_to_end(&mut answers));
    assert!(ended.await.is_ok(), "the connection is still open");
    attack.abort();
    let answer = node.get("/healthz", Some(node.reader()), "").await;
    assert_eq!(answer, Some((200, "ok".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_have_a_bound() {
    let node = Node::start().await;
    let mut stream = node
        .connect(Some(node.reader()), &[b"http/1.1"])
        .await
        .expect("a connection");
    let line = format!("X-Long: {}\r\n", "x".repeat(60_000));
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n1\r\n").await;
    let mut sent = 0;
    // The server hangs up long before this is over.
    for _ in 0..1000 {
        match stream.write_all(line.as_bytes()).await {
            Ok(()) => sent += line.len(),
            Err(_) => break,
        }
    }
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(sent < 40 << 20, "{sent} bytes of headers were taken");
}
