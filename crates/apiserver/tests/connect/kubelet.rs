//! Kubelets that need not mean well, and the authority that says which node they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::{KubeletTls, KubeletTrust};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The authority of a cluster.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    pub fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        Authority {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("an authority");
        roots
    }

    /// A certificate for a user of a group, or for a server if that is its purpose.
    pub fn issue(&self, name: &str, group: &str, purpose: ExtendedKeyUsagePurpose) -> Identity {
        self.issue_for(name, group, &[], purpose)
    }

    /// A client certificate that is valid from now on, and not since long ago.
    pub fn issue_now(&self, name: &str, group: &str) -> Identity {
        let mut params = Authority::params(name, group, &[], ExtendedKeyUsagePurpose::ClientAuth);
        params.not_before = std::time::SystemTime::now().into();
        self.sign(&params)
    }

    pub fn issue_for(&self, name: &str, group: &str, names: &[&str], purpose: ExtendedKeyUsagePurpose) -> Identity {
        self.sign(&Authority::params(name, group, names, purpose))
    }

    fn params(name: &str, group: &str, names: &[&str], purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if !group.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![purpose];
        params
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        (vec![certificate.der().clone()], key)
    }

    /// What a node's kubelet serves with.
    pub fn serving(&self, node: &str) -> Identity {
        self.issue(
            &format!("system:node:{node}"),
            "system:nodes",
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    /// How an API server asks kubelets whose certificates it verifies.
    pub fn kubelet_tls(&self) -> KubeletTls {
        KubeletTls {
            identity: Some(self.issue(apiserver::KUBELET_CLIENT, "", ExtendedKeyUsagePurpose::ClientAuth)),
            trust: KubeletTrust::Nodes(self.roots()),
            is_for_kubelets_only: true,
        }
    }
}

/// Believes any server.
pub fn unchecked_tls() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("protocols are known");
    let verifier = Arc::new(client::AnyServer(provider));
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Arc::new(builder.with_no_client_auth())
}

/// What a kubelet answers to the head of a request: bytes, after which the connection is kept or closed.
#[derive(Clone)]
pub struct Answer {
    pub bytes: Vec<u8>,
    /// Sent again and again once the bytes are.
    pub forever: &'static [u8],
    pub keeps_connection: bool,
    /// Makes the bytes anew for each request.
    pub make: Option<Arc<dyn Fn() -> Vec<u8> + Send + Sync>>,
}

impl Answer {
    pub fn new(text: impl Into<Vec<u8>>) -> Answer {
        Answer {
            bytes: text.into(),
            forever: b"",
            keeps_connection: false,
            make: None,
        }
    }

    pub fn made(make: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Answer {
        Answer {
            make: Some(Arc::new(make)),
            ..Answer::new("")
        }
    }
}

/// A server on loopback that answers every request with the same bytes.
pub struct Kubelet {
    pub address: SocketAddr,
    /// How many connections came as far as a finished handshake, and whom the clients said to be.
    pub connections: Arc<AtomicUsize>,
    pub clients: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Everything that was received.
    pub received: Arc<Mutex<Vec<u8>>>,
}

impl Kubelet {
    pub async fn serve(identity: Identity, clients: &Authority, answer: Answer) -> Kubelet {
        Kubelet::serve_at("127.0.0.1", identity, clients, answer).await
    }

    pub async fn serve_at(host: &str, identity: Identity, clients: &Authority, answer: Answer) -> Kubelet {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients.roots()), provider.clone());
        let verifier = verifier.allow_unauthenticated().build().expect("a verifier");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocols are known")
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.0, identity.1)
            .expect("a certificate");
        let listener = TcpListener::bind((host, 0)).await.expect("a port");
        let kubelet = Kubelet {
            address: listener.local_addr().expect("an address"),
            connections: Arc::default(),
            clients: Arc::default(),
            received: Arc::default(),
        };
        let (connections, seen, received) = (
            kubelet.connections.clone(),
            kubelet.clients.clone(),
            kubelet.received.clone(),
        );
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                let (connections, seen, received) = (connections.clone(), seen.clone(), received.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    connections.fetch_add(1, Ordering::SeqCst);
                    if let Some(chain) = stream.get_ref().1.peer_certificates() {
                        seen.lock().push(chain[0].to_vec());
                    }
                    converse(stream, &answer, &received).await;
                });
            }
        });
        kubelet
    }
}

/// Reads the head of a request, answers, and goes on reading if the connection is kept.
async fn converse(mut stream: TlsStream<TcpStream>, answer: &Answer, received: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 4096];
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => {
                head.extend_from_slice(&buffer[..read]);
                received.lock().extend_from_slice(&buffer[..read]);
            }
            _ => return,
        }
    }
    let made = answer.make.as_ref().map(|make| make());
    if stream.write_all(made.as_ref().unwrap_or(&answer.bytes)).await.is_err() {
        return;
    }
    while !answer.forever.is_empty() {
        if stream.write_all(answer.forever).await.is_err() {
            return;
        }
    }
    if !answer.keeps_connection {
        return;
    }
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        received.lock().extend_from_slice(&buffer[..read]);
    }
}
