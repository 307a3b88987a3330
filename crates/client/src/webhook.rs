//! Calls a webhook: one HTTPS request with a JSON body, to a URL or to a Service of the cluster.
//!
//! A [`Webhook`] is made once from the `clientConfig` of the object that registers it and keeps its TLS setup and idle
//! connections. Failures read as Go's HTTP client words them, because users and tests match on these texts.

mod trust;

pub use trust::client_config as webhook_tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::{Fields, Value};
use base64::Engine;
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tracing::debug;

use crate::destination::{self, DestinationError, Destinations, Origin};

/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Connections that are kept for the next call.
const MAX_IDLE_CONNECTIONS: usize = 16;

/// How much of an answer that is not a success goes into the error.
const MAX_EXPLANATION_BYTES: usize = 2048;

/// Where a Service of the cluster can be reached right now.
pub trait ServiceResolver: Send + Sync {
    /// The address and port of one ready endpoint behind a Service's port.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String>;

    /// Whether a connection may lead to an address that others than administrators chose.
    fn check(&self, address: SocketAddr, origin: Origin) -> Result<(), DestinationError> {
        Destinations::default().check(address, origin, &[])
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error("could not get REST client: {0}")]
    Config(String),
    /// The request did not reach the webhook, or no answer came back.
    #[error("failed to call webhook: Post {url:?}: {message}")]
    Call { url: String, message: String },
    #[error("failed to call webhook: {message}")]
    Status { code: u16, message: String },
}

/// A webhook that can be called again and again.
pub struct Webhook {
    address: Address,
    authority_pem: Option<Vec<u8>>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    idle: Mutex<Vec<Idle>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Url {
        host: String,
        port: u16,
        authority: String,
        path: String,
    },
    Service {
        namespace: String,
        name: String,
        port: u16,
        path: String,
    },
}

/// A connection that waits for the next call, and where it leads.
struct Idle {
    to: (String, u16),
    sender: SendRequest<Full<Bytes>>,
}

impl Webhook {
    /// Reads a `clientConfig` with `url` or `service`, and `caBundle`.
    pub fn new(client_config: &Value) -> Result<Webhook, WebhookError> {
        let authority_pem = match client_config.text("caBundle") {
            "" => None,
            text => Some(
                base64::engine::general_purpose::STANDARD
                    .decode(text)
                    .map_err(|error| WebhookError::Config(format!("caBundle is not base64: {error}")))?,
            ),
        };
        Ok(Webhook {
            address: Address::parse(client_config).map_err(WebhookError::Config)?,
            authority_pem,
            tls: OnceLock::new(),
            idle: Mutex::default(),
        })
    }

    /// Posts a JSON body and returns the body of a successful answer. The timeout covers all of it and is told to the
    /// webhook as well.
    pub async fn post(
        &self,
        services: &dyn ServiceResolver,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, WebhookError> {
        let url = self.address.url(timeout);
        let failed = |message: String| WebhookError::Call {
            url: url.clone(),
            message,
        };
        let call = self.exchange(services, body, timeout);
        match tokio::time::timeout(timeout, call).await {
            Err(_) => Err(failed("context deadline exceeded".to_owned())),
            Ok(Err(message)) => Err(failed(message)),
            Ok(Ok((code, body))) if (200..300).contains(&code) => Ok(body),
            Ok(Ok((code, body))) => Err(refusal(code, &body)),
        }
    }

    async fn exchange(
        &self,
        services: &dyn ServiceResolver,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(u16, Bytes), String> {
        let to = self.address.resolve(services)?;
        // A connection may have been closed while it lay idle; a call that never left is made again on a new one.
        while let Some(idle) = self.take_idle(&to) {
            match self.send(idle, self.request(body.clone(), timeout)?).await {
                Err(error) if error.is_canceled() || error.is_closed() || error.is_incomplete_message() => continue,
                answer => return answer.map_err(|error| error.to_string()),
            }
        }
        let fresh = self.connect(services, &to).await?;
        let answer = self.send(fresh, self.request(body, timeout)?).await;
        answer.map_err(|error| match error.is_incomplete_message() {
            true => "EOF".to_owned(),
            false => error.to_string(),
        })
    }

    fn take_idle(&self, to: &(String, u16)) -> Option<Idle> {
        let mut idle = self.idle.lock();
        idle.retain(|one| !one.sender.is_closed());
        let at = idle.iter().position(|one| one.to == *to && one.sender.is_ready())?;
        Some(idle.swap_remove(at))
    }

    async fn send(&self, mut idle: Idle, request: Request<Full<Bytes>>) -> hyper::Result<(u16, Bytes)> {
        let response = idle.sender.send_request(request).await?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(error) => return Err(*error),
                // Longer than anything a webhook may say: what was read is not an answer.
                Err(_) => return Ok((413, Bytes::from_static(b"the answer is too long"))),
            },
        };
        if idle.sender.ready().await.is_ok() {
            let mut kept = self.idle.lock();
            if kept.len() < MAX_IDLE_CONNECTIONS {
                kept.push(idle);
            }
        }
        Ok((code, body))
    }

    async fn connect(&self, services: &dyn ServiceResolver, to: &(String, u16)) -> Result<Idle, String> {
        let tls = self
            .tls
            .get_or_init(|| trust::client_config(self.authority_pem.as_deref(), None));
        let connector = TlsConnector::from(tls.clone()?);
        let name = ServerName::try_from(self.address.server_name()).map_err(|error| error.to_string())?;
        let stream = self.dial(services, to).await?;
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| trust::explain(&error))?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection to a webhook ended");
            }
        });
        Ok(Idle { to: to.clone(), sender })
    }

    async fn dial(&self, services: &dyn ServiceResolver, to: &(String, u16)) -> Result<TcpStream, String> {
        let failed = |error: io::Error| dial_error(to, &error);
        let addresses = destination::resolve(&to.0, to.1).await.map_err(failed)?;
        for address in &addresses {
            match services.check(*address, self.address.origin()) {
                // That it is the webhook and nobody else is what its certificate shows.
                Ok(()) | Err(DestinationError::OwnMachine(_)) => {}
                Err(refused) => return Err(format!("dial tcp {address}: {refused}")),
            }
        }
        let stream = TcpStream::connect(addresses.as_slice()).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }

    fn request(&self, body: Bytes, timeout: Duration) -> Result<Request<Full<Bytes>>, String> {
        Request::post(self.address.path_and_query(timeout))
            .header(header::HOST, self.address.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|error| error.to_string())
    }
}

impl Address {
    fn parse(client_config: &Value) -> Result<Address, String> {
        let service = &client_config["service"];
        if service.is_object() {
            let path = service.text("path").trim_start_matches('/');
            return Ok(Address::Service {
                namespace: service.text("namespace").to_owned(),
                name: service.text("name").to_owned(),
                port: match service.number("port") {
                    0 => 443,
                    port => u16::try_from(port).map_err(|_| format!("invalid port {port}"))?,
                },
                path: format!("/{path}"),
            });
        }
        let url = client_config.text("url");
        let uri: Uri = url.parse().map_err(|error| format!("invalid URL {url:?}: {error}"))?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("https"), Some(authority)) => Ok(Address::Url {
                host: authority.host().trim_matches(['[', ']']).to_owned(),
                port: authority.port_u16().unwrap_or(443),
                authority: authority.to_string(),
                path: uri.path().to_owned(),
            }),
            _ => Err(format!("the URL {url:?} must be https and name a host")),
        }
    }

    fn authority(&self) -> String {
        match self {
            Address::Url { authority, .. } => authority.clone(),
            Address::Service { port, .. } => format!("{}:{port}", self.server_name()),
        }
    }

    /// The name that the webhook's certificate must be for.
    fn server_name(&self) -> String {
        match self {
            Address::Url { host, .. } => host.clone(),
            Address::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// Who says where it is: a URL with an address is an administrator's word, and so is one with the machine's own name.
    fn origin(&self) -> Origin {
        match self {
            Address::Url { host, .. } if host == "localhost" || host.parse::<IpAddr>().is_ok() => Origin::Literal,
            Address::Url { .. } => Origin::Name,
            Address::Service { .. } => Origin::Object,
        }
    }

    fn path_and_query(&self, timeout: Duration) -> String {
        let (Address::Url { path, .. } | Address::Service { path, .. }) = self;
        format!("{path}?timeout={}", go_duration(timeout))
    }

    fn url(&self, timeout: Duration) -> String {
        format!("https://{}{}", self.authority(), self.path_and_query(timeout))
    }

    fn resolve(&self, services: &dyn ServiceResolver) -> Result<(String, u16), String> {
        match self {
            Address::Url { host, port, .. } => Ok((host.clone(), *port)),
            Address::Service {
                namespace, name, port, ..
            } => services.resolve(namespace, name, *port),
        }
    }
}

/// A duration as Go prints it: `10s`, `1.5s`.
fn go_duration(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}s", duration.as_secs_f64()),
    }
}

fn dial_error(to: &(String, u16), error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    };
    match to.0.contains(':') {
        true => format!("dial tcp [{}]:{}: {why}", to.0, to.1),
        false => format!("dial tcp {}:{}: {why}", to.0, to.1),
    }
}

/// What an answer that is not a success means, in the words of client-go.
fn refusal(code: u16, body: &[u8]) -> WebhookError {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    if let Some(status) = status.filter(|status| status.text("kind") == "Status" && status.has("message")) {
        return WebhookError::Status {
            code,
            message: status.text("message").to_owned(),
        };
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_EXPLANATION_BYTES)]);
    let text = match text.trim() {
        "" => "unknown",
        text => text,
    };
    let message = match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        413 | 429 => text.to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    };
    WebhookError::Status { code, message }
}

#[cfg(test)]
mod tests;
