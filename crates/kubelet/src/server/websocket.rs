//! WebSockets as Kubernetes uses them: several channels over one connection, each message led by its channel's number.

use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::query::Query;
use super::{Refusal, Server, exec, forward};

/// What is buffered between the two ends of a connection within this process.
pub const PIPE_BYTES: usize = 64 * 1024;
/// The channel on which v5 says that another one is closed.
const CLOSE_CHANNEL: u8 = 255;

/// How channels are written, the preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    V5,
    V4,
    V4Base64,
    Plain,
    PlainBase64,
}

const PROTOCOLS: &[(&str, Protocol)] = &[
    ("v5.channel.k8s.io", Protocol::V5),
    ("v4.channel.k8s.io", Protocol::V4),
    ("v4.base64.channel.k8s.io", Protocol::V4Base64),
    ("channel.k8s.io", Protocol::Plain),
    ("base64.channel.k8s.io", Protocol::PlainBase64),
];

impl Protocol {
    fn is_text(self) -> bool {
        matches!(self, Protocol::V4Base64 | Protocol::PlainBase64)
    }

    /// From v4 on the end of a command is a Status and not just words.
    pub fn has_status(self) -> bool {
        !matches!(self, Protocol::Plain | Protocol::PlainBase64)
    }
}

/// What goes on over a connection once it is open.
pub type Work = Box<dyn FnOnce(Channels) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// A request to switch protocols that was granted.
pub struct Opened {
    protocol: Protocol,
    headers: HeaderMap,
    work: Work,
}

impl Opened {
    pub fn response(&self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = self.headers.clone();
        response
    }

    pub async fn run(self, io: impl Io) {
        let stream = WebSocketStream::from_raw_socket(Box::new(io) as Box<dyn Io>, Role::Server, None).await;
        let (sink, stream) = stream.split();
        let channels = Channels {
            receiver: Receiver {
                protocol: self.protocol,
                stream,
            },
            sender: Sender {
                protocol: self.protocol,
                sink,
            },
        };
        (self.work)(channels).await;
    }
}

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Both directions of a connection.
pub struct Channels {
    pub receiver: Receiver,
    pub sender: Sender,
}

pub struct Receiver {
    protocol: Protocol,
    stream: SplitStream<WebSocketStream<Box<dyn Io>>>,
}

pub struct Sender {
    protocol: Protocol,
    sink: SplitSink<WebSocketStream<Box<dyn Io>>, Message>,
}

/// What the client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Data(u8, Bytes),
    /// The client sends nothing more on this channel.
    Closed(u8),
}

impl Receiver {
    /// The next message; none when the client has gone.
    pub async fn next(&mut self) -> Option<Received> {
        loop {
            let bytes = match self.stream.next().await?.ok()? {
                Message::Binary(bytes) if !self.protocol.is_text() => bytes,
                Message::Text(text) if self.protocol.is_text() => decode_text(text.as_str())?,
                Message::Close(_) => return None,
                // Pings are answered below us; anything else is not of this protocol.
                _ => continue,
            };
            let (channel, data) = (*bytes.first()?, bytes.slice(1..));
            if channel == CLOSE_CHANNEL && self.protocol == Protocol::V5 {
                return data.first().map(|closed| Received::Closed(*closed));
            }
            return Some(Received::Data(channel, data));
        }
    }
}

impl Sender {
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub async fn send(&mut self, channel: u8, data: &[u8]) -> Result<(), Error> {
        let message = if self.protocol.is_text() {
            Message::text(format!("{channel}{}", STANDARD.encode(data)))
        } else {
            Message::binary([&[channel], data].concat())
        };
        self.sink.send(message).await
    }

    pub async fn close(&mut self) {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        // The client may have gone first.
        let _ = self.sink.send(Message::Close(Some(frame))).await;
        let _ = self.sink.flush().await;
    }
}

/// The channel as a digit, then base64.
fn decode_text(text: &str) -> Option<Bytes> {
    let channel = text.chars().next()?.to_digit(10)? as u8;
    let data = STANDARD.decode(text.get(1..)?).ok()?;
    Some(Bytes::from([&[channel], data.as_slice()].concat()))
}

/// Grants a request for exec, attach or port forwarding. What can fail has been tried by then.
pub async fn open(server: &Server, request: &Request<Bytes>) -> Result<Opened, Refusal> {
    let (protocol, headers) = negotiate(request.headers())?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let path: Vec<&str> = request
        .uri()
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let work = match path.as_slice() {
        [verb @ ("exec" | "attach"), namespace, pod, container]
        | [verb @ ("exec" | "attach"), namespace, pod, _, container] => {
            let pod = server.pod(namespace, pod)?;
            let options = exec::Options::parse(&query, *verb == "exec")?;
            exec::open(&server.shared, &pod, container, options).await?
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            let pod = server.pod(namespace, pod)?;
            forward::open(&server.shared, &pod, &query).await?
        }
        _ => return Err(Refusal::not_found("404 page not found")),
    };
    Ok(Opened {
        protocol,
        headers,
        work,
    })
}

fn negotiate(headers: &HeaderMap) -> Result<(Protocol, HeaderMap), Refusal> {
    let words = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .map(|word| word.trim().to_owned())
            .collect()
    };
    if !words("upgrade")
        .iter()
        .any(|word| word.eq_ignore_ascii_case("websocket"))
    {
        let message = format!("unable to upgrade: unsupported protocol {:?}", words("upgrade"));
        return Err(Refusal::bad_request(message));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| Refusal::bad_request("Sec-WebSocket-Key is missing"))?;
    let offered = words("sec-websocket-protocol");
    let mut answer = HeaderMap::new();
    let protocol = match offered.is_empty() {
        true => Protocol::Plain,
        false => {
            let fitting = PROTOCOLS
                .iter()
                .find(|(name, _)| offered.iter().any(|offer| offer == name));
            let (name, protocol) = fitting.ok_or_else(|| {
                Refusal::bad_request(format!(
                    "unable to upgrade: none of the protocols {offered:?} is supported"
                ))
            })?;
            answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
            *protocol
        }
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    answer.insert(
        header::SEC_WEBSOCKET_ACCEPT,
        accept.map_err(|error| Refusal::internal(error.to_string()))?,
    );
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    Ok((protocol, answer))
}
