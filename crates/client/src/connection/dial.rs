//! Opening a connection.

use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::Address;
use super::pool::Lease;
use crate::TransportError;
use crate::tls::TlsSource;

/// How long a connection may take to be established, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What one HTTP/2 stream may have under way: a large list must not wait for window updates.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// What all HTTP/2 streams of a connection may have under way together: a stalled watch must not starve the others.
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;
/// A connection that has been silent this long is asked whether it is still there, and closed without an answer in time.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

pub(super) struct Dialer {
    address: Address,
    tls: Option<TlsSource>,
}

impl Protocol {
    fn alpn(self) -> Vec<u8> {
        match self {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 => b"h2".to_vec(),
        }
    }
}

impl Dialer {
    pub fn new(address: Address, tls: Option<TlsSource>) -> Dialer {
        Dialer { address, tls }
    }

    pub fn target(&self) -> &str {
        &self.address.authority
    }

    /// Whether a new connection would be made with other certificates than the last one.
    pub fn has_changed(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSource::has_changed)
    }

    /// Opens a connection with the first of `protocols` that the server speaks.
    pub async fn dial(&self, protocols: &[Protocol]) -> Result<Lease, TransportError> {
        let timeout = || TransportError::ConnectTimeout {
            address: self.address.authority.clone(),
            seconds: CONNECT_TIMEOUT.as_secs(),
        };
        tokio::time::timeout(CONNECT_TIMEOUT, self.open(protocols))
            .await
            .map_err(|_| timeout())?
    }

    async fn open(&self, protocols: &[Protocol]) -> Result<Lease, TransportError> {
        let failed = |source| TransportError::Connect {
            address: self.address.authority.clone(),
            source,
        };
        let stream = TcpStream::connect((self.address.host.as_str(), self.address.port))
            .await
            .map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else {
            return http1_over(stream).await;
        };
        let config = tls
            .config()
            .map_err(|error| TransportError::Credentials(error.to_string()))?;
        let mut config = (*config).clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.alpn()).collect();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(self.address.server_name.clone(), stream)
            .await
            .map_err(failed)?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            http2_over(stream).await
        } else {
            http1_over(stream).await
        }
    }
}

async fn http1_over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Lease, TransportError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "an HTTP/1.1 connection to the API server ended");
        }
    });
    Ok(Lease::Http1(sender))
}

async fn http2_over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Lease, TransportError> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an HTTP/2 connection to the API server ended");
        }
    });
    Ok(Lease::http2(sender))
}
