//! The TLS side of a connection: which server we trust and which certificate we show.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Config, ConfigError, Source};

/// Where Linux distributions keep the certificates that the system trusts.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Makes the configuration for the next connection, from the files as they are then: certificates are renewed while
/// we run.
pub(crate) struct TlsSource {
    authority: Option<Source>,
    certificate: Option<(Source, Source)>,
    insecure: bool,
    last: Mutex<Option<(Material, Arc<ClientConfig>)>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Material {
    authority: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsSource {
    pub fn new(config: &Config) -> TlsSource {
        TlsSource {
            authority: config.certificate_authority.clone(),
            certificate: config.client_certificate.clone(),
            insecure: config.insecure_skip_tls_verify,
            last: Mutex::new(None),
        }
    }

    /// Whether the files say something else than what the last connection was made with. Files that cannot be read now
    /// change nothing.
    pub fn has_changed(&self) -> bool {
        let sources = self
            .authority
            .iter()
            .chain(self.certificate.iter().flat_map(|(chain, key)| [chain, key]));
        if !sources.into_iter().any(|source| matches!(source, Source::File(_))) {
            return false;
        }
        let Ok(material) = self.material() else { return false };
        self.last.lock().as_ref().is_some_and(|(used, _)| *used != material)
    }

    fn material(&self) -> Result<Material, ConfigError> {
        let certificate = self.certificate.as_ref();
        Ok(Material {
            authority: self.authority.as_ref().map(Source::read).transpose()?,
            certificate: certificate
                .map(|(chain, key)| Ok((chain.read()?, key.read()?)))
                .transpose()?,
        })
    }

    pub fn config(&self) -> Result<Arc<ClientConfig>, ConfigError> {
        let material = self.material()?;
        let mut last = self.last.lock();
        if let Some((used, config)) = &*last
            && *used == material
        {
            return Ok(config.clone());
        }
        let config = Arc::new(self.build(&material)?);
        *last = Some((material, config.clone()));
        Ok(config)
    }

    fn build(&self, material: &Material) -> Result<ClientConfig, ConfigError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(unusable("the TLS setup"))?;
        let builder = if self.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        } else {
            builder.with_root_certificates(roots(material.authority.as_deref())?)
        };
        let config = match &material.certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder
                .with_client_auth_cert(certificates(chain)?, private_key(key)?)
                .map_err(unusable("the client certificate"))?,
        };
        Ok(config)
    }
}

fn unusable<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> ConfigError {
    move |error| ConfigError::Certificate {
        what,
        message: error.to_string(),
    }
}

pub(crate) fn roots(authority: Option<&[u8]>) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(pem) => {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(unusable("the certificate authority"))?;
            }
        }
        None => {
            let bundle = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok());
            roots.add_parsable_certificates(certificates(&bundle.unwrap_or_default())?);
        }
    }
    Ok(roots)
}

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(unusable("a certificate"))
}

pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound => unusable("the client key")("it holds no PEM private key".to_owned()),
        other => unusable("the client key")(other.to_string()),
    })
}

/// A kubelet that has asked for a serving certificate shows the key that it asked for to whoever connects for this name.
/// So it proves that it is where it says to be before anybody vouches for it.
pub const SERVING_CHALLENGE: &str = "kubelet-serving-challenge.karve.internal";

/// How long a server may take to show its certificate.
const SHOW_TIMEOUT: Duration = Duration::from_secs(5);

/// The certificate that a server shows when it is connected to by a name. Nobody need have signed it, but the server has
/// proved to hold its key.
pub async fn shown_certificate(address: SocketAddr, name: &'static str) -> io::Result<Vec<u8>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let stream = tokio::time::timeout(SHOW_TIMEOUT, connecting).await??;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = shown.map(|certificate| certificate.to_vec());
    shown.ok_or_else(|| io::Error::other("it shows no certificate"))
}

/// Takes any server for whom it claims to be: for `insecure-skip-tls-verify`, for probes, and for kubelets that signed
/// their own certificate.
#[derive(Debug)]
pub struct AnyServer(pub Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
