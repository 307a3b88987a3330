//! The client: requests over a transport, with failures decoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::Resource;
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;

use crate::status::decode_status;
use crate::{Api, Body, Config, ConfigError, Error, HttpTransport, Result, Transport, TransportError, Upgrade};

/// The longest answer that is collected into memory: twice the 34 MB list of the largest benchmark leaves room.
const MAX_ANSWER_BYTES: usize = 512 << 20;
/// How long a request that is not a watch may take; the API server itself gives up after 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// How often a request is sent again when the server says "later" with `Retry-After`.
const MAX_LATER: u32 = 5;
/// The longest `Retry-After` that is honoured.
const MAX_LATER_SECONDS: u64 = 10;

/// A connection to an API server under one name. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    /// The `User-Agent` and the field manager of writes.
    name: Arc<str>,
    /// While false, nothing but reads is sent; see [`Client::while_leading`].
    leading: Option<Arc<AtomicBool>>,
}

impl Client {
    pub fn new(transport: Arc<dyn Transport>) -> Client {
        Client {
            transport,
            name: Arc::from("karve"),
            leading: None,
        }
    }

    /// A client of the API server that `config` names. Connects when the first request is sent.
    pub fn connect(config: Config) -> Result<Client, ConfigError> {
        Ok(Client::new(Arc::new(HttpTransport::new(config)?)))
    }

    /// The same connection under another name: the `User-Agent`, and the field manager of writes.
    pub fn named(&self, name: &str) -> Client {
        Client {
            name: Arc::from(name),
            ..self.clone()
        }
    }

    /// A client that refuses to write with [`Error::NotLeading`] while the flag is false.
    pub fn while_leading(&self, leading: Arc<AtomicBool>) -> Client {
        Client {
            leading: Some(leading),
            ..self.clone()
        }
    }

    /// The same client by another way, which usually means as someone else.
    pub fn through(&self, transport: Arc<dyn Transport>) -> Client {
        Client {
            transport,
            ..self.clone()
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The calls on one resource; for all namespaces until [`Api::in_namespace`] narrows them.
    pub fn resource(&self, resource: &'static Resource) -> Api {
        Api::new(self.clone(), resource)
    }

    /// Sends a request and returns the answer as it is, whatever its status.
    pub async fn raw(&self, mut request: Request<Bytes>) -> Result<Response<Body>> {
        self.prepare(&mut request)?;
        Ok(self.transport.send(request).await?)
    }

    /// Sends a request that asks to switch protocols.
    pub async fn upgrade(&self, mut request: Request<Bytes>) -> Result<Upgrade> {
        self.prepare(&mut request)?;
        Ok(self.transport.upgrade(request).await?)
    }

    /// Sends a request and collects the answer; a status of 400 or more becomes an error.
    pub async fn fetch(&self, request: Request<Bytes>) -> Result<Bytes> {
        let timeout = TransportError::AnswerTimeout {
            seconds: ANSWER_TIMEOUT.as_secs(),
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, self.fetch_patiently(request)).await {
            Ok(result) => result,
            Err(_) => Err(Error::Transport(timeout)),
        }
    }

    /// Sends a request and returns its body unread; a status of 400 or more becomes an error.
    pub async fn open(&self, request: Request<Bytes>) -> Result<Body> {
        let answer = self.raw(request).await?;
        if answer.status().as_u16() >= 400 {
            return Err(failure(answer).await);
        }
        Ok(answer.into_body())
    }

    async fn fetch_patiently(&self, request: Request<Bytes>) -> Result<Bytes> {
        let mut attempt = 0;
        loop {
            let answer = self.raw(request.clone()).await?;
            let later = retry_after(&answer);
            if answer.status().as_u16() < 400 {
                return collect(answer.into_body(), request.uri().path()).await;
            }
            let error = failure(answer).await;
            match later {
                Some(wait) if attempt < MAX_LATER => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
            attempt += 1;
        }
    }

    fn prepare(&self, request: &mut Request<Bytes>) -> Result<()> {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads
            && self
                .leading
                .as_ref()
                .is_some_and(|leading| !leading.load(Ordering::Acquire))
        {
            return Err(Error::NotLeading);
        }
        let headers = request.headers_mut();
        if !headers.contains_key(header::USER_AGENT) {
            let name = header::HeaderValue::from_str(&self.name).map_err(http::Error::from);
            headers.insert(header::USER_AGENT, name.map_err(TransportError::from)?);
        }
        headers
            .entry(header::ACCEPT)
            .or_insert(header::HeaderValue::from_static("application/json"));
        Ok(())
    }
}

/// The wait that a 429 or 503 asks for.
fn retry_after(answer: &Response<Body>) -> Option<Duration> {
    if !matches!(answer.status().as_u16(), 429 | 503) {
        return None;
    }
    let seconds: u64 = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.clamp(1, MAX_LATER_SECONDS)))
}

async fn failure(answer: Response<Body>) -> Error {
    let code = answer.status().as_u16();
    match collect(answer.into_body(), "a failed request").await {
        Ok(body) => Error::Api(decode_status(code, &body)),
        Err(error) => error,
    }
}

async fn collect(mut body: Body, request: &str) -> Result<Bytes> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > MAX_ANSWER_BYTES {
            return Err(Error::TooLong {
                request: request.to_owned(),
                limit: MAX_ANSWER_BYTES,
            });
        }
        // Most answers are one frame, which then need not be copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
