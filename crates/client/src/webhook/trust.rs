//! Which certificates of a webhook are believed.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::tls::{certificates, private_key, roots};

/// A configuration that trusts the given authorities, or the system's without any, and shows a certificate with its key
/// if there is one.
pub fn client_config(
    authority_pem: Option<&[u8]>,
    identity: Option<(&[u8], &[u8])>,
) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let pinned = match authority_pem {
        Some(pem) => certificates(pem).map_err(|error| error.to_string())?,
        None => Vec::new(),
    };
    if authority_pem.is_some() && pinned.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    let roots = roots(authority_pem).map_err(|error| error.to_string())?;
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())?;
    let verifier = Arc::new(Verifier { chains, pinned });
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = certificates(chain).map_err(|error| error.to_string())?;
            let key = private_key(key).map_err(|error| error.to_string())?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| error.to_string())?
        }
    };
    Ok(Arc::new(config))
}

/// Why a handshake failed, in Go's words where they are known.
pub fn explain(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(problem)) => {
            let why = match problem {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "certificate signed by unknown authority".to_owned()
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "certificate has expired or is not yet valid".to_owned()
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    format!("certificate is not valid for the name of the webhook: {problem}")
                }
                other => other.to_string(),
            };
            format!("tls: failed to verify certificate: x509: {why}")
        }
        _ if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        _ => error.to_string(),
    }
}

/// Chains up to an authority, or the very certificate that the bundle holds: a webhook that signed its own certificate
/// puts that into the bundle, and Go accepts it although it is an authority's.
#[derive(Debug)]
struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pinned.iter().any(|pinned| pinned.as_ref() == end_entity.as_ref()) {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            rustls::client::verify_server_name(&certificate, server_name)?;
            return check_validity(end_entity, now);
        }
        self.chains
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<ServerCertVerified, rustls::Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| CertificateError::Other(OtherError(Arc::new(error))))?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    match validity.not_before.timestamp() <= now && now <= validity.not_after.timestamp() {
        true => Ok(ServerCertVerified::assertion()),
        false => Err(CertificateError::Expired.into()),
    }
}
