//! Fetching by HTTP: one connection per request, redirects followed, everything bounded in size and time.
//!
//! Servers are not trusted. An authorization goes only to the origin it is for, nothing leads from TLS to plain text,
//! and no server of a network leads to this machine itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::http::{Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::super::digest::{Digest, Digester};
use super::super::room::Room;

const MAX_REDIRECTS: u32 = 5;
const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: usize = 128 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How much is written before the room on the disk is looked at again.
const BYTES_BETWEEN_LOOKS: u64 = 32 << 20;

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
    #[error("dial {0}: refused because the registry redirects to a loopback or link-local address")]
    Local(String),
    #[error("refused because the registry redirects from https to {0:?}")]
    PlainText(String),
    #[error("{what} in time: {url}")]
    Timeout { what: &'static str, url: String },
    #[error("Get {url:?}: {source}")]
    Request { url: String, source: hyper::Error },
    #[error("Get {0:?}: stopped after {MAX_REDIRECTS} redirects")]
    Redirects(String),
    #[error("{url:?} is larger than {limit} bytes")]
    TooLarge { url: String, limit: u64 },
    #[error("failed to write what was fetched: {0}")]
    Write(#[from] io::Error),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub struct Http {
    tls: OnceLock<TlsConnector>,
    patience: Patience,
}

/// How long servers are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long a server may think before it answers.
    pub answer: Duration,
    /// How long a download may stand still.
    pub stall: Duration,
    /// How long a download may take, and how much longer for its size: a server that sends a byte a minute never stands
    /// still.
    pub body: Duration,
    pub slowest_bytes_per_second: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            body: Duration::from_secs(300),
            slowest_bytes_per_second: 16 << 10,
        }
    }
}

/// Where a URL leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    secure: bool,
    host: String,
    port: u16,
}

/// An answer whose body has not been read yet.
pub struct Fetched {
    url: String,
    response: Response<Incoming>,
    patience: Patience,
}

impl Origin {
    pub fn of_url(url: &str) -> Result<Self, HttpError> {
        let invalid = || HttpError::Address(url.chars().take(500).collect());
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid()),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let host = authority.ok_or_else(invalid)?.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(invalid());
        }
        Ok(Self {
            secure,
            host: host.to_ascii_lowercase(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
        })
    }

    /// Whether there is a host to connect to and nothing else in its name.
    pub fn is_whole(&self) -> bool {
        !self.host.is_empty() && !self.host.contains(['@', '/', '?', '#'])
    }

    /// Whether its name says that it is this machine.
    fn is_local(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(is_local_address)
    }
}

/// Whether an address is of this machine or of its link, where it serves what is not meant for others.
fn is_local_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_link_local() || address.is_unspecified() || address.octets()[0] == 0
        }
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local() || address.is_unspecified(),
    }
}

impl Http {
    pub fn new(patience: Patience) -> Self {
        Self {
            tls: OnceLock::new(),
            patience,
        }
    }

    /// Gets a URL. `registry` is who leads there. An authorization is for the origin of the URL: a redirect to another
    /// does not take it along.
    pub async fn get(
        &self,
        registry: &Origin,
        url: &str,
        accept: &str,
        authorization: Option<&str>,
    ) -> Result<Fetched, HttpError> {
        let (mut url, first) = (url.to_owned(), Origin::of_url(url)?);
        for _ in 0..=MAX_REDIRECTS {
            let origin = Origin::of_url(&url)?;
            let authorization = authorization.filter(|_| origin == first);
            let response = self.send(registry, &origin, &url, accept, authorization).await?;
            let moved = response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED;
            let location = response
                .headers()
                .get(header::LOCATION)
                .and_then(|value| value.to_str().ok());
            match location.filter(|_| moved) {
                Some(location) => url = resolve(&url, location)?,
                None => {
                    let patience = self.patience;
                    return Ok(Fetched {
                        url,
                        response,
                        patience,
                    });
                }
            }
        }
        Err(HttpError::Redirects(url))
    }

    async fn send(
        &self,
        registry: &Origin,
        origin: &Origin,
        url: &str,
        accept: &str,
        authorization: Option<&str>,
    ) -> Result<Response<Incoming>, HttpError> {
        if registry.secure && !origin.secure {
            return Err(HttpError::PlainText(url.to_owned()));
        }
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
        let may_be_local = origin == registry || registry.is_local();
        let connecting = self.connect(origin, may_be_local);
        let stream = timed(CONNECT_TIMEOUT, "cannot connect", url, connecting).await??;
        let failed = |source| HttpError::Request {
            url: url.to_owned(),
            source,
        };
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        // Ends with the answer's body, or when that is dropped.
        tokio::spawn(connection);
        timed(self.patience.answer, "no answer", url, sender.send_request(request))
            .await?
            .map_err(failed)
    }

    async fn connect(&self, origin: &Origin, may_be_local: bool) -> Result<Box<dyn Stream>, HttpError> {
        let host = &origin.host;
        let failed = |source| HttpError::Connect {
            host: host.clone(),
            source,
        };
        let found = tokio::net::lookup_host((host.as_str(), origin.port)).await;
        let found: Vec<SocketAddr> = found.map_err(failed)?.collect();
        // Judged after the name was resolved, and dialled as resolved: a name may mean something else the next time.
        let allowed: Vec<_> = found
            .into_iter()
            .filter(|address| may_be_local || !is_local_address(address.ip()))
            .collect();
        if allowed.is_empty() {
            return Err(HttpError::Local(host.clone()));
        }
        let stream = TcpStream::connect(allowed.as_slice()).await.map_err(failed)?;
        if !origin.secure {
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
    let certificates = CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok);
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
    async fn piece(&mut self, deadline: Instant) -> Result<Option<Bytes>, HttpError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let frame = self.response.frame();
            let what = "the download does not get on";
            let frame = timed(left.min(self.patience.stall), what, &self.url, frame).await?;
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
        self.check_announced(limit)?;
        let deadline = Instant::now() + self.patience.body;
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(deadline).await? {
            self.check(bytes.len() + piece.len(), limit)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Writes a body of so many bytes to a file and answers its digest and true size.
    pub async fn save(mut self, file: std::fs::File, size: u64) -> Result<(Digest, u64), HttpError> {
        self.check_announced(size)?;
        let longer = Duration::from_secs(size / self.patience.slowest_bytes_per_second);
        let deadline = Instant::now() + self.patience.body + longer;
        let place = file.as_fd().try_clone_to_owned()?;
        let mut file = tokio::fs::File::from_std(file);
        let (mut digester, mut looked_at) = (Digester::new(), 0);
        while let Some(piece) = self.piece(deadline).await? {
            digester.update(&piece);
            self.check(digester.bytes() as usize, size)?;
            if digester.bytes() - looked_at > BYTES_BETWEEN_LOOKS {
                looked_at = digester.bytes();
                Room::on(&place)?.check(size - looked_at)?;
            }
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        let bytes = digester.bytes();
        Ok((digester.finish(), bytes))
    }

    /// Refuses a body that says itself that it is too large.
    fn check_announced(&self, limit: u64) -> Result<(), HttpError> {
        let announced = self.header(header::CONTENT_LENGTH.as_str()).parse().unwrap_or(0);
        self.check(announced, limit)
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

/// The origin that a redirect leads to, if it may be followed at all.
pub fn redirected(from: &str, location: &str) -> Option<Origin> {
    Origin::of_url(&resolve(from, location).ok()?).ok()
}

/// Where a redirect leads: a whole URL, or a path at the same host.
fn resolve(from: &str, location: &str) -> Result<String, HttpError> {
    if location.contains("://") {
        return Ok(location.to_owned());
    }
    let uri: Uri = from.parse().map_err(|_| HttpError::Address(from.to_owned()))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(authority)) if location.starts_with('/') && !location.starts_with("//") => {
            Ok(format!("{scheme}://{authority}{location}"))
        }
        _ => Err(HttpError::Address(location.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known_in_every_form() {
        for local in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(is_local_address(local.parse().unwrap()), "{local}");
        }
        for remote in ["10.0.0.1", "192.0.2.1", "2001:db8::1"] {
            assert!(!is_local_address(remote.parse().unwrap()), "{remote}");
        }
    }

    #[test]
    fn origins_differ_by_scheme_host_and_port() {
        let origin = |url| Origin::of_url(url).unwrap();
        assert_eq!(origin("https://reg.example/a"), origin("https://REG.example:443/b?c"));
        assert_ne!(origin("https://reg.example/"), origin("http://reg.example/"));
        assert_ne!(origin("https://reg.example/"), origin("https://reg.example:444/"));
        for url in [
            "ftp://a/",
            "file:///etc/passwd",
            "/path",
            "https://me@a/",
            "https:///a",
            "",
        ] {
            assert!(Origin::of_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn redirects_are_whole_urls_or_paths() {
        let from = "https://reg.example:5000/v2/a";
        assert_eq!(resolve(from, "/b").unwrap(), "https://reg.example:5000/b");
        assert_eq!(resolve(from, "https://c/d").unwrap(), "https://c/d");
        for location in ["b", ".evil.example/", "//evil.example/", "@evil.example/", ""] {
            assert!(resolve(from, location).is_err(), "{location}");
        }
    }
}
