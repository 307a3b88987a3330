//! Fetching by HTTP: one connection per request, redirects followed, everything bounded in size and time.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::http::{Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ring::digest::{Context, SHA256};
use rustls::RootCertStore;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::digest;

const MAX_REDIRECTS: u32 = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a server may think before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a download may stand still.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the distributions keep the certificates they trust.
const TRUSTED: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{0:?} is not an HTTP address")]
    Address(String),
    #[error("dial {host}: {source}")]
    Connect { host: String, source: io::Error },
    #[error("{what} in time: {url}")]
    Timeout { what: &'static str, url: String },
    #[error("Get {url:?}: {source}")]
    Request { url: String, source: hyper::Error },
    #[error("Get {0:?}: stopped after {MAX_REDIRECTS} redirects")]
    Redirects(String),
    #[error("{url:?} is larger than {limit} bytes")]
    TooLarge { url: String, limit: u64 },
    #[error("writing what was fetched: {0}")]
    Write(#[from] io::Error),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub struct Http {
    tls: OnceLock<TlsConnector>,
}

/// An answer whose body has not been read yet.
pub struct Fetched {
    url: String,
    response: Response<Incoming>,
}

impl Http {
    pub fn new() -> Self {
        Self { tls: OnceLock::new() }
    }

    /// Gets a URL. An authorization is for the host it was given for: a redirect to another does not take it along.
    pub async fn get(&self, url: &str, accept: &str, authorization: Option<&str>) -> Result<Fetched, HttpError> {
        let (mut url, first_host) = (url.to_owned(), host_of(url));
        for _ in 0..=MAX_REDIRECTS {
            let authorization = authorization.filter(|_| host_of(&url) == first_host);
            let response = self.send(&url, accept, authorization).await?;
            let moved = response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED;
            let location = response
                .headers()
                .get(header::LOCATION)
                .and_then(|value| value.to_str().ok());
            match location.filter(|_| moved) {
                Some(location) => url = resolve(&url, location),
                None => return Ok(Fetched { url, response }),
            }
        }
        Err(HttpError::Redirects(url))
    }

    async fn send(
        &self,
        url: &str,
        accept: &str,
        authorization: Option<&str>,
    ) -> Result<Response<Incoming>, HttpError> {
        let invalid = || HttpError::Address(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::get(path)
            .header(header::HOST, authority.as_str())
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, concat!("karve/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| invalid())?;
        let stream = timed(CONNECT_TIMEOUT, "cannot connect", url, self.connect(&uri)).await??;
        let failed = |source| HttpError::Request {
            url: url.to_owned(),
            source,
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        // Ends with the answer's body, or when that is dropped.
        tokio::spawn(connection);
        timed(ANSWER_TIMEOUT, "no answer", url, sender.send_request(request))
            .await?
            .map_err(failed)
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<dyn Stream>, HttpError> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let secure = uri.scheme_str() != Some("http");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let failed = |source| HttpError::Connect {
            host: host.clone(),
            source,
        };
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(failed)?;
        if !secure {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.clone()).map_err(|error| failed(io::Error::other(error)))?;
        let stream = self.tls().connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }

    /// The certificates are read when they are first needed: most nodes never pull in their first seconds.
    fn tls(&self) -> &TlsConnector {
        self.tls.get_or_init(|| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap_or_else(|error| unreachable!("ring has the protocol versions it was built with: {error}"))
                .with_root_certificates(trusted())
                .with_no_client_auth();
            TlsConnector::from(Arc::new(config))
        })
    }
}

fn trusted() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let bundle = TRUSTED
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .unwrap_or_default();
    let mut bundle = bundle.as_slice();
    let certificates = rustls_pemfile::certs(&mut bundle).filter_map(Result::ok);
    roots.add_parsable_certificates(certificates);
    roots
}

impl Fetched {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// A header as text; empty where there is none.
    pub fn header(&self, name: &str) -> String {
        self.response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    }

    /// The next piece of the body.
    async fn piece(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = timed(
                STALL_TIMEOUT,
                "the download stands still",
                &self.url,
                self.response.frame(),
            )
            .await?;
            match frame.transpose().map_err(|source| HttpError::Request {
                url: self.url.clone(),
                source,
            })? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    pub async fn bytes(mut self, limit: u64) -> Result<Vec<u8>, HttpError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            self.check(bytes.len() + piece.len(), limit)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Writes the body to a file and answers its digest.
    pub async fn save(mut self, path: &Path, limit: u64) -> Result<String, HttpError> {
        let mut file = tokio::fs::File::create(path).await?;
        let (mut context, mut length) = (Context::new(&SHA256), 0);
        while let Some(piece) = self.piece().await? {
            length += piece.len();
            self.check(length, limit)?;
            context.update(&piece);
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        Ok(digest::shown(&context.finish()))
    }

    fn check(&self, length: usize, limit: u64) -> Result<(), HttpError> {
        if length as u64 > limit {
            return Err(HttpError::TooLarge {
                url: self.url.clone(),
                limit,
            });
        }
        Ok(())
    }
}

async fn timed<T>(
    limit: Duration,
    what: &'static str,
    url: &str,
    work: impl Future<Output = T>,
) -> Result<T, HttpError> {
    tokio::time::timeout(limit, work).await.map_err(|_| HttpError::Timeout {
        what,
        url: url.to_owned(),
    })
}

fn host_of(url: &str) -> Option<String> {
    url.parse::<Uri>()
        .ok()?
        .authority()
        .map(|authority| authority.as_str().to_owned())
}

/// Where a redirect leads: a whole URL, or a path at the same host.
fn resolve(from: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let scheme = from.split("://").next().unwrap_or("https");
    format!("{scheme}://{}{location}", host_of(from).unwrap_or_default())
}
