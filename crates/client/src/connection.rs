//! The transport over TCP and TLS: one HTTP/2 connection shared by all, or a pool of HTTP/1.1 ones.

mod address;
mod credentials;
mod dial;
mod pool;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tls::TlsSource;
use crate::{Body, Config, ConfigError, Transport, TransportError, Upgrade};
use address::Address;
use credentials::Credentials;
use dial::{Dialer, Protocol};
use pool::{Lease, Pool};

/// How often a request is sent again because the connection it was given to had already closed.
const MAX_RESENDS: u32 = 2;

/// How often it is looked whether certificates in files have been renewed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reaches an API server over the network. Connects on demand and again after the connection was lost.
pub struct HttpTransport {
    address: Address,
    dialer: Dialer,
    credentials: Credentials,
    pool: Pool,
    looked: Mutex<Instant>,
}

impl HttpTransport {
    pub fn new(config: Config) -> Result<HttpTransport, ConfigError> {
        let address = Address::parse(&config)?;
        let tls = address.tls.then(|| TlsSource::new(&config));
        if let Some(tls) = &tls {
            // Unusable certificates are reported now rather than at the first request.
            tls.config()?;
        }
        Ok(HttpTransport {
            dialer: Dialer::new(address.clone(), tls),
            credentials: Credentials::new(&config)?,
            pool: Pool::default(),
            looked: Mutex::new(Instant::now()),
            address,
        })
    }

    /// Adds credentials, and the server to the URI: HTTP/2 needs all of it, HTTP/1.1 a path and a `Host`.
    fn address_request(
        &self,
        request: Request<Bytes>,
        protocol: Protocol,
    ) -> Result<Request<Full<Bytes>>, TransportError> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let path = format!("{}{path}", self.address.prefix);
        self.credentials.add(&mut parts.headers)?;
        parts.uri = match protocol {
            Protocol::Http2 => Uri::builder()
                .scheme(self.address.scheme())
                .authority(self.address.authority.as_str())
                .path_and_query(path)
                .build()?,
            Protocol::Http1 => {
                let host = header::HeaderValue::from_str(&self.address.authority).map_err(http::Error::from)?;
                parts.headers.insert(header::HOST, host);
                Uri::builder().path_and_query(path).build()?
            }
        };
        Ok(Request::from_parts(parts, Full::new(body)))
    }

    /// A connection goes by the certificate that it was opened with, which ends some day: once there is another one, new
    /// requests go by new connections.
    fn leave_outdated_connections(&self) {
        let mut looked = self.looked.lock();
        if looked.elapsed() >= LOOK_EVERY {
            *looked = Instant::now();
            if self.dialer.has_changed() {
                self.pool.clear();
            }
        }
    }

    async fn send_once(&self, request: Request<Bytes>) -> Result<Response<Body>, (TransportError, bool)> {
        let mut lease = match self.pool.take() {
            Some(lease) => lease,
            None => self.pool.connect(&self.dialer).await.map_err(|error| (error, false))?,
        };
        let request = self
            .address_request(request, lease.protocol())
            .map_err(|error| (error, false))?;
        match lease.send(request).await {
            Ok(answer) => Ok(answer.map(|body| self.pool.lend(lease, body))),
            Err(error) => {
                let unsent = error.is_canceled() || error.is_closed();
                if unsent {
                    self.pool.discard(&lease);
                }
                Err((TransportError::Http(error), unsent))
            }
        }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        self.leave_outdated_connections();
        let mut resends = 0;
        loop {
            match self.send_once(request.clone()).await {
                Ok(answer) => return Ok(answer),
                // The request never left: the connection had been closed while it lay idle.
                Err((_, true)) if resends < MAX_RESENDS => resends += 1,
                Err((error, _)) => return Err(error),
            }
        }
    }

    async fn upgrade(&self, request: Request<Bytes>) -> Result<Upgrade, TransportError> {
        let Lease::Http1(mut sender) = self.dialer.dial(&[Protocol::Http1]).await? else {
            return Err(TransportError::NoUpgrade);
        };
        let request = self.address_request(request, Protocol::Http1)?;
        let mut answer = sender.send_request(request).await?;
        if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Upgrade::Refused(
                answer.map(|body| body.map_err(TransportError::from).boxed_unsync()),
            ));
        }
        let upgraded = hyper::upgrade::on(&mut answer).await?;
        let (parts, _) = answer.into_parts();
        Ok(Upgrade::Open(parts, Box::new(TokioIo::new(upgraded))))
    }
}
