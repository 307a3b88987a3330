//! How a request reaches an API server.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncRead, AsyncWrite};

/// The body of an answer: bytes as they arrive, so that a watch is a body that does not end.
pub type Body = UnsyncBoxBody<Bytes, TransportError>;

/// Sends one request and returns once the answer's headers are known.
///
/// The request's URI holds only a path and a query; the transport knows the server and adds the credentials.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Body>, TransportError>;

    /// Sends a request that asks to switch protocols (exec, attach, port-forward).
    async fn upgrade(&self, _request: http::Request<Bytes>) -> Result<Upgrade, TransportError> {
        Err(TransportError::NoUpgrade)
    }
}

/// The answer to a request that asked to switch protocols.
pub enum Upgrade {
    /// The server switched: the connection now belongs to the caller.
    Open(http::response::Parts, Box<dyn Duplex>),
    /// The server answered in plain HTTP, usually with a Status that says why.
    Refused(http::Response<Body>),
}

/// A connection after an upgrade.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The request did not get an answer from an API server.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("could not connect to {address}: {source}")]
    Connect { address: String, source: std::io::Error },
    #[error("could not connect to {address} within {seconds} seconds")]
    ConnectTimeout { address: String, seconds: u64 },
    #[error("no answer within {seconds} seconds")]
    AnswerTimeout { seconds: u64 },
    #[error("the credentials could not be used: {0}")]
    Credentials(String),
    #[error("the connection failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("the request is malformed: {0}")]
    Request(#[from] http::Error),
    #[error("this transport cannot switch protocols")]
    NoUpgrade,
    /// For transports outside of this crate.
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl TransportError {
    /// True when the server may well answer if asked again later.
    pub fn is_temporary(&self) -> bool {
        !matches!(self, TransportError::Request(_) | TransportError::NoUpgrade)
    }
}

/// A body that is already complete.
pub fn body_from_bytes(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
