//! Connections to kubelets: how this server proves itself to them, and how they prove which node they are.
//!
//! A node writes its own address into its Node object. That address is worth nothing by itself: it could be another
//! node's, or this server's. What counts is the serving certificate, which names the node.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use auth::User;
use auth::authenticate::x509;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::dial;

/// What the server shows to kubelets, and whose certificates of theirs it believes.
pub struct KubeletTls {
    /// A certificate chain and its key; without them only kubelets answer that ask for none.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub trust: KubeletTrust,
    /// Whether the certificate is for nothing else. Then no server takes it: whoever leads a server to a server instead of
    /// a kubelet gets nothing by its rights.
    pub is_for_kubelets_only: bool,
}

/// Which serving certificates of kubelets are believed.
pub enum KubeletTrust {
    /// Any, as upstream does without `--kubelet-certificate-authority`: a node is whoever answers at its address.
    Anyone,
    /// Those of an authority that gives nodes certificates for `system:node:NAME`, and only those.
    Nodes(RootCertStore),
    /// Those of another authority too, whose certificates may name the node among their DNS names instead.
    NodesOrNames(RootCertStore),
}

/// Connects to kubelets.
#[derive(Clone)]
pub struct KubeletDialer {
    tls: Arc<ClientConfig>,
    verifies: bool,
    /// The user that kubelets know this server as, and that no server answers.
    reserved_name: Option<String>,
}

impl KubeletTls {
    pub fn dialer(self) -> Result<KubeletDialer, rustls::Error> {
        let shown = self.identity.as_ref().and_then(|(chain, _)| chain.first());
        let reserved = shown.filter(|_| self.is_for_kubelets_only);
        let reserved_name = reserved.and_then(|shown| Some(x509::user(shown).ok()?.user.name));
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let verifies = !matches!(self.trust, KubeletTrust::Anyone);
        let verifier: Arc<dyn ServerCertVerifier> = match self.trust {
            KubeletTrust::Anyone => Arc::new(client::AnyServer(provider)),
            KubeletTrust::Nodes(roots) => Arc::new(NodeVerifier {
                roots,
                provider,
                by_name: false,
            }),
            KubeletTrust::NodesOrNames(roots) => Arc::new(NodeVerifier {
                roots,
                provider,
                by_name: true,
            }),
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut tls = match self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        // The name that a connection is made for is the node's, which kubelets have no use for.
        tls.enable_sni = false;
        Ok(KubeletDialer {
            tls: Arc::new(tls),
            verifies,
            reserved_name,
        })
    }
}

impl KubeletDialer {
    /// The same with a certificate that is replaced from time to time, always for the same name.
    pub fn showing(mut self, certificate: Arc<dyn ResolvesClientCert>) -> KubeletDialer {
        Arc::make_mut(&mut self.tls).client_auth_cert_resolver = certificate;
        self
    }

    /// Whether a client of this server shows the certificate by which servers ask kubelets.
    pub fn is_reserved(&self, user: &User) -> bool {
        self.reserved_name.as_ref() == Some(&user.name)
    }

    /// A connection to the kubelet of a node, which has proved to be that node's if certificates are verified.
    pub async fn dial(&self, node: &str, addresses: &[SocketAddr]) -> Result<TlsStream<TcpStream>, String> {
        let connected = dial::tls(self.tls.clone(), node, addresses).await;
        connected.map_err(|error| explain(node, addresses, &error))
    }

    /// Which of some addresses has been shown to be a node's own, by the kubelet that answers there. Without verification
    /// a node is taken at its word.
    pub async fn prove(&self, node: &str, addresses: &[SocketAddr]) -> Result<Option<IpAddr>, String> {
        if !self.verifies {
            return Ok(None);
        }
        let connected = self.dial(node, addresses).await?;
        let peer = connected.get_ref().0.peer_addr().map_err(|error| error.to_string())?;
        Ok(Some(peer.ip()))
    }
}

/// Believes a certificate that an authority signed for the node that the connection is made for.
#[derive(Debug)]
struct NodeVerifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
    /// Whether the node's name among the certificate's DNS names does where the subject names no node.
    by_name: bool,
}

impl NodeVerifier {
    fn check_identity(
        &self,
        der: &CertificateDer<'_>,
        certificate: &ParsedCertificate<'_>,
        node: &ServerName<'_>,
    ) -> Result<(), rustls::Error> {
        let subject = x509::user(der).map(|subject| subject.user).ok();
        let named = subject.as_ref().and_then(|user| user.name.strip_prefix("system:node:"));
        match (named, &subject) {
            (Some(named), Some(user))
                if named == node.to_str() && user.groups.iter().any(|group| group == "system:nodes") =>
            {
                Ok(())
            }
            (None, _) if self.by_name => verify_server_name(certificate, node),
            _ => Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForNameContext {
                    expected: node.to_owned(),
                    presented: subject.map(|user| user.name).into_iter().collect(),
                },
            )),
        }
    }
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        self.check_identity(end_entity, &certificate, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a kubelet could not be connected to, and what to do about a certificate that is not believed.
fn explain(node: &str, addresses: &[SocketAddr], error: &io::Error) -> String {
    let at = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(problem)) = inner else {
        return error.to_string();
    };
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "tls: failed to verify certificate: the kubelet of node {node:?} at {at} shows a certificate that the kubelet \
             certificate authority did not sign; start it with --rotate-server-certificates (serverTLSBootstrap: true in \
             its configuration) and approve its request: kubectl get csr, kubectl certificate approve NAME"
        ),
        CertificateError::NotValidForName => {
            format!("tls: failed to verify certificate: what answers at {at} is not the kubelet of node {node:?}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "tls: failed to verify certificate: what answers at {at} is not the kubelet of node {node:?}, but {}; the \
             node's status.addresses may be wrong",
            presented.first().map_or("nobody known", String::as_str)
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => format!(
            "tls: failed to verify certificate: the serving certificate of the kubelet of node {node:?} has expired; \
             restart that kubelet, or approve its request for a new one: kubectl get csr"
        ),
        other => format!("tls: failed to verify certificate of the kubelet of node {node:?} at {at}: {other}"),
    }
}
