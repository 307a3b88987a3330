//! Connections to the members of the cluster: one HTTP/2 channel for each.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::StoreError;

/// A member that does not answer within this counts as away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a silent connection is trusted.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Flow-control windows large enough that a page of the initial load needs no round trips.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Files in PEM. They are read anew for every connection, so certificates can be renewed in place.
#[derive(Clone, Debug)]
pub struct Tls {
    pub ca: PathBuf,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// The member could not be reached, so the request was never sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to etcd: {0}")]
pub(crate) struct NotConnected(String);

/// One member's address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    host: String,
    port: u16,
    secure: bool,
}

impl Member {
    fn parse(endpoint: &str) -> Result<Self, StoreError> {
        let invalid = |why: &str| StoreError::Invalid(format!("etcd endpoint {endpoint:?}: {why}"));
        let (secure, address) = match endpoint.split_once("://") {
            Some(("http", address)) => (false, address),
            Some(("https", address)) => (true, address),
            _ => return Err(invalid("begins with neither http:// nor https://")),
        };
        let address = address.trim_end_matches('/');
        let (host, port) = address.rsplit_once(':').ok_or_else(|| invalid("has no port"))?;
        let port = port.parse().map_err(|_| invalid("has no valid port"))?;
        Ok(Member {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            secure,
        })
    }
}

/// A channel to each member, which connects with its first request.
pub(crate) fn channels(endpoints: &[String], tls: Option<Tls>) -> Result<Vec<Channel>, StoreError> {
    let members = endpoints
        .iter()
        .map(|endpoint| Member::parse(endpoint))
        .collect::<Result<Vec<_>, _>>()?;
    if members.is_empty() {
        return Err(StoreError::Invalid("no etcd endpoint is given".into()));
    }
    if tls.is_none() && members.iter().any(|member| member.secure) {
        return Err(StoreError::Invalid(
            "an https endpoint of etcd needs a certificate authority".into(),
        ));
    }
    members.into_iter().map(|member| channel(member, tls.clone())).collect()
}

fn channel(member: Member, tls: Option<Tls>) -> Result<Channel, StoreError> {
    let host = if member.host.contains(':') {
        format!("[{}]", member.host)
    } else {
        member.host.clone()
    };
    // The scheme is always http for tonic: encryption is the connector's business.
    let endpoint = Endpoint::from_shared(format!("http://{host}:{}", member.port))
        .map_err(|error| StoreError::Invalid(error.to_string()))?
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .tcp_nodelay(true);
    let place = Arc::new((member, tls));
    let connector = tower::service_fn(move |_| {
        let place = place.clone();
        async move { connect(&place.0, place.1.as_ref()).await.map(TokioIo::new) }
    });
    Ok(endpoint.connect_with_connector_lazy(connector))
}

async fn connect(member: &Member, tls: Option<&Tls>) -> Result<Box<dyn Connection>, NotConnected> {
    let failed = |why: &dyn std::fmt::Display| NotConnected(format!("{}:{}: {why}", member.host, member.port));
    match tokio::time::timeout(CONNECT_TIMEOUT, member.connect(tls)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(failed(&"no answer")),
    }
}

/// Either kind of connection, encrypted or not.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Member {
    async fn connect(&self, tls: Option<&Tls>) -> Result<Box<dyn Connection>, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls.filter(|_| self.secure) else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(Arc::new(tls.config()?))
            .connect(name, stream)
            .await?;
        Ok(Box::new(stream))
    }
}

impl Tls {
    fn config(&self) -> Result<ClientConfig, Box<dyn Error + Send + Sync>> {
        let at = |path: &PathBuf| {
            let path = path.display().to_string();
            move |error| io::Error::other(format!("{path}: {error}"))
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&self.ca).map_err(at(&self.ca))? {
            roots.add(certificate.map_err(at(&self.ca))?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = CertificateDer::pem_file_iter(cert).map_err(at(cert))?;
                let chain = chain.collect::<Result<Vec<_>, _>>().map_err(at(cert))?;
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).map_err(at(key))?)?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => return Err("a client certificate needs its key and the reverse".into()),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_with_a_port() {
        let member = |host: &str, port, secure| Member {
            host: host.into(),
            port,
            secure,
        };
        assert_eq!(
            Member::parse("http://127.0.0.1:2379").unwrap(),
            member("127.0.0.1", 2379, false)
        );
        assert_eq!(
            Member::parse("https://etcd.example:2379/").unwrap(),
            member("etcd.example", 2379, true)
        );
        assert_eq!(Member::parse("https://[::1]:2379").unwrap(), member("::1", 2379, true));
        for wrong in ["127.0.0.1:2379", "http://host", "ftp://host:1", "http://host:x"] {
            assert!(matches!(Member::parse(wrong), Err(StoreError::Invalid(_))), "{wrong}");
        }
    }
}
