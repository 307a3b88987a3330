//! HTTP probes, and the HTTP requests of lifecycle hooks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Answer;
use super::tcp::{self, DialError};
use crate::limits;
use crate::pod::HttpGet;

const MAX_REDIRECTS: usize = 10;

/// Why a request has no answer, in Go's words where it has them.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("Get {url:?}: {source}")]
    Get { url: String, source: Box<HttpError> },
    #[error("invalid URL {url:?}: {source}")]
    Url { url: String, source: http::uri::InvalidUri },
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("invalid server name: {0}")]
    ServerName(#[from] rustls::pki_types::InvalidDnsNameError),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("TLS handshake: {0}")]
    TlsHandshake(#[source] std::io::Error),
    #[error("{}", describe(.0))]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("stopped after {MAX_REDIRECTS} redirects")]
    Redirects,
}

/// An answer's status, where it points to, and the beginning of its body.
pub struct Fetched {
    pub status: u16,
    location: Option<String>,
    pub body: String,
}

pub async fn ask(action: &HttpGet, address: &str, port: u16, timeout: Duration) -> Answer {
    match tokio::time::timeout(timeout, follow(action, address, port, timeout)).await {
        Ok(Ok(fetched)) if (200..300).contains(&fetched.status) => Answer::Success,
        // It leads to another host, which was not asked: whoever answers a probe must not choose whom the node asks.
        Ok(Ok(fetched)) if (300..400).contains(&fetched.status) => {
            Answer::Warning(format!("Probe terminated redirects, Response body: {}", fetched.body))
        }
        Ok(Ok(fetched)) => Answer::Failure(format!("HTTP probe failed with statuscode: {}", fetched.status)),
        Ok(Err(error)) => Answer::Failure(error.to_string()),
        Err(_) => Answer::Failure(format!(
            "Get {:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            url(action, address, port)
        )),
    }
}

/// Follows redirects within the host; one that leads elsewhere is an answer in itself.
async fn follow(action: &HttpGet, address: &str, port: u16, timeout: Duration) -> Result<Fetched, HttpError> {
    let mut target = url(action, address, port);
    for _ in 0..=MAX_REDIRECTS {
        let uri = parse(&target)?;
        let fetched = fetch(&uri, action, timeout)
            .await
            .map_err(|error| error.of_url(&target))?;
        let redirected = (300..400)
            .contains(&fetched.status)
            .then_some(fetched.location.as_ref())
            .flatten();
        match redirected.and_then(|location| resolve(&uri, location)) {
            Some(next) => target = next,
            None => return Ok(fetched),
        }
    }
    Err(HttpError::Redirects.of_url(&target))
}

impl HttpError {
    fn of_url(self, url: &str) -> HttpError {
        HttpError::Get {
            url: url.to_owned(),
            source: Box::new(self),
        }
    }
}

pub fn parse(url: &str) -> Result<Uri, HttpError> {
    url.parse().map_err(|source| HttpError::Url {
        url: url.to_owned(),
        source,
    })
}

pub fn url(action: &HttpGet, address: &str, port: u16) -> String {
    let scheme = match action.scheme.as_str() {
        "HTTPS" | "https" => "https",
        _ => "http",
    };
    let host = Some(action.host.as_str())
        .filter(|host| !host.is_empty())
        .unwrap_or(address);
    let host = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    let slash = if action.path.starts_with('/') { "" } else { "/" };
    format!("{scheme}://{host}:{port}{slash}{}", action.path)
}

/// The redirect's target if it is on the same host.
fn resolve(from: &Uri, location: &str) -> Option<String> {
    if location.starts_with('/') && !location.starts_with("//") {
        return Some(format!("{}://{}{location}", from.scheme_str()?, from.authority()?));
    }
    let to: Uri = location.parse().ok()?;
    (to.host()? == from.host()?).then(|| location.to_owned())
}

/// One GET with the probe's headers.
pub async fn fetch(uri: &Uri, action: &HttpGet, timeout: Duration) -> Result<Fetched, HttpError> {
    let host = uri.host().unwrap_or_default();
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = tcp::connect(host, port, timeout).await?;
    if !secure {
        return send(stream, uri, action).await;
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    let connector = tokio_rustls::TlsConnector::from(trusting_tls()?);
    let stream = connector.connect(name, stream).await.map_err(HttpError::TlsHandshake)?;
    send(stream, uri, action).await
}

async fn send<S>(stream: S, uri: &Uri, action: &HttpGet) -> Result<Fetched, HttpError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let answer = sender.send_request(request(uri, action)?).await?;
    let status = answer.status().as_u16();
    let location = answer.headers().get(header::LOCATION);
    let location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = read_at_most(answer.into_body(), limits::PROBE_OUTPUT_BYTES).await;
    driver.abort();
    Ok(Fetched {
        status,
        location,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// The beginning of a body. One that is longer, or cut off, does not change what the status said.
async fn read_at_most(mut body: hyper::body::Incoming, limit: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < limit {
        let Some(Ok(frame)) = body.frame().await else { break };
        read.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
    }
    read.truncate(limit);
    read
}

fn request(uri: &Uri, action: &HttpGet) -> Result<Request<Empty<Bytes>>, http::Error> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().uri(path);
    let mut headers = vec![
        ("Host", uri.authority().map_or("", |authority| authority.as_str())),
        ("User-Agent", "kube-probe/1.36"),
        ("Accept", "*/*"),
        ("Connection", "close"),
    ];
    // A header of the probe's own replaces ours; an empty one only removes it.
    headers.retain(|(name, _)| {
        !action
            .http_headers
            .iter()
            .any(|own| own.name.eq_ignore_ascii_case(name))
    });
    let own = action.http_headers.iter().filter(|header| !header.value.is_empty());
    headers.extend(own.map(|header| (header.name.as_str(), header.value.as_str())));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(Empty::new())
}

fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None if error.is_incomplete_message() => "EOF".to_owned(),
        None => error.to_string(),
    }
}

/// TLS without verification: a probe asks whether a server answers, not who it is.
fn trusting_tls() -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
    static CONFIG: OnceLock<Result<Arc<rustls::ClientConfig>, rustls::Error>> = OnceLock::new();
    CONFIG
        .get_or_init(|| crate::tls::trusting_client().map(Arc::new))
        .clone()
}
