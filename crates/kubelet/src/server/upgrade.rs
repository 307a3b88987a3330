//! Requests that switch protocols: how the client wants to talk, and what about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cri::Runtime;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::channels::{Channels, Io, Protocol, RESIZE, STATUS, STDERR, STDIN, STDOUT, Tunnel};
use super::exec::{self, Command};
use super::forward::{self, Forward};
use super::query::Query;
use super::{Refusal, Server};
use crate::spdy;

/// What is buffered between the two ends of a connection within this process.
pub const PIPE_BYTES: usize = 64 * 1024;
/// How long a client may take to open the streams of a command.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(30);

/// How the two sides talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    WebSocket(Protocol),
    Spdy,
    /// SPDY within WebSocket messages.
    Tunnel,
}

/// WebSocket subprotocols, the preferred first.
const SUBPROTOCOLS: &[(&str, Carrier)] = &[
    ("SPDY/3.1+portforward.k8s.io", Carrier::Tunnel),
    ("v5.channel.k8s.io", Carrier::WebSocket(Protocol::V5)),
    ("v4.channel.k8s.io", Carrier::WebSocket(Protocol::V4)),
    ("v4.base64.channel.k8s.io", Carrier::WebSocket(Protocol::V4Base64)),
    ("channel.k8s.io", Carrier::WebSocket(Protocol::Plain)),
    ("base64.channel.k8s.io", Carrier::WebSocket(Protocol::PlainBase64)),
];
/// What streams over SPDY mean, the preferred first. Older ones differ in how a command's end is told.
const STREAM_PROTOCOLS: &[&str] = &["v4.channel.k8s.io", "portforward.k8s.io"];
const STREAM_PROTOCOL_HEADER: &str = "x-stream-protocol-version";

/// What goes on over a connection once it is open.
enum Work {
    Command(Command),
    Forward(Forward),
}

/// A request to switch protocols that was granted.
pub struct Opened {
    carrier: Carrier,
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
        let ended = match (self.carrier, self.work) {
            (Carrier::WebSocket(protocol), Work::Command(command)) => {
                command.run(Channels::over_websocket(io, protocol).await).await;
                Ok(())
            }
            (Carrier::WebSocket(protocol), Work::Forward(forward)) => {
                forward.run(Channels::over_websocket(io, protocol).await).await;
                Ok(())
            }
            (Carrier::Spdy, Work::Command(command)) => command_over_spdy(io, command).await,
            (Carrier::Spdy, Work::Forward(forward)) => forward_over_spdy(io, forward).await,
            (Carrier::Tunnel, Work::Forward(forward)) => forward_over_spdy(Tunnel::new(io).await, forward).await,
            (Carrier::Tunnel, Work::Command(_)) => Ok(()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "Streaming connection ended with an error");
        }
    }
}

async fn command_over_spdy(io: impl Io, command: Command) -> std::io::Result<()> {
    let (_session, mut streams) = spdy::session::start(io, spdy::Role::Server)?;
    let wanted = command.channels();
    let gathered = tokio::time::timeout(STREAMS_TIMEOUT, gather(&mut streams, wanted)).await;
    if let Ok(Some(gathered)) = gathered {
        command.run(Channels::over_spdy(gathered)).await;
    }
    Ok(())
}

/// Waits for the streams that a command needs.
async fn gather(streams: &mut mpsc::Receiver<spdy::Stream>, wanted: usize) -> Option<BTreeMap<u8, spdy::Stream>> {
    let mut gathered = BTreeMap::new();
    while gathered.len() < wanted {
        let stream = streams.recv().await?;
        let channel = match stream.header("streamType")? {
            "stdin" => STDIN,
            "stdout" => STDOUT,
            "stderr" => STDERR,
            "error" => STATUS,
            "resize" => RESIZE,
            _ => return None,
        };
        gathered.insert(channel, stream);
    }
    Some(gathered)
}

async fn forward_over_spdy(io: impl Io, forward: Forward) -> std::io::Result<()> {
    let (session, streams) = spdy::session::start(io, spdy::Role::Server)?;
    forward.run_streams(session, streams).await;
    Ok(())
}

/// Grants a request for exec, attach or port forwarding. What can fail has been tried by then.
pub async fn open(server: &Server, request: &Request<Bytes>) -> Result<Opened, Refusal> {
    let (carrier, headers) = negotiate(request.headers())?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let path: Vec<&str> = request
        .uri()
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let work = match path.as_slice() {
        ["exec" | "attach", ..] if carrier == Carrier::Tunnel => {
            return Err(Refusal::bad_request("only ports are forwarded through a tunnel"));
        }
        [verb @ ("exec" | "attach"), namespace, pod, container]
        | [verb @ ("exec" | "attach"), namespace, pod, _, container] => {
            let pod = server.pod(namespace, pod)?;
            let options = exec::Options::parse(&query, *verb == "exec")?;
            Work::Command(exec::open(&server.shared, &pod, container, options).await?)
        }
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            let pod = server.pod(namespace, pod)?;
            let by_channel = matches!(carrier, Carrier::WebSocket(_));
            Work::Forward(forward::open(&server.shared, &pod, &query, by_channel).await?)
        }
        _ => return Err(Refusal::not_found("404 page not found")),
    };
    Ok(Opened { carrier, headers, work })
}

/// What a URL stands for that a runtime gave out.
pub enum Offer {
    Command {
        container_id: String,
        options: exec::Options,
    },
    Ports {
        sandbox: String,
        ports: Vec<u16>,
    },
}

/// Grants a request at such a URL.
pub async fn open_offer(runtime: &Arc<dyn Runtime>, offer: Offer, headers: &HeaderMap) -> Result<Opened, Refusal> {
    let (carrier, headers) = negotiate(headers)?;
    let work = match offer {
        Offer::Command { .. } if carrier == Carrier::Tunnel => {
            return Err(Refusal::bad_request("only ports are forwarded through a tunnel"));
        }
        Offer::Command { container_id, options } => {
            Work::Command(exec::open_by_id(&**runtime, container_id, options).await?)
        }
        Offer::Ports { sandbox, ports } => Work::Forward(Forward::new(runtime.clone(), sandbox, ports)),
    };
    Ok(Opened { carrier, headers, work })
}

fn negotiate(headers: &HeaderMap) -> Result<(Carrier, HeaderMap), Refusal> {
    let wanted = words(headers, "upgrade");
    let asks = |protocol: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(protocol));
    if asks("websocket") {
        return negotiate_websocket(headers);
    }
    if !asks("SPDY/3.1") {
        return Err(Refusal::bad_request(format!(
            "unable to upgrade: unsupported protocol {wanted:?}"
        )));
    }
    let mut answer = HeaderMap::new();
    let offered = words(headers, STREAM_PROTOCOL_HEADER);
    let fitting = STREAM_PROTOCOLS
        .iter()
        .find(|name| offered.iter().any(|offer| offer == *name));
    let name = fitting.ok_or_else(|| {
        Refusal::new(
            StatusCode::FORBIDDEN,
            format!("unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {STREAM_PROTOCOLS:?}"),
        )
    })?;
    answer.insert(STREAM_PROTOCOL_HEADER, HeaderValue::from_static(name));
    answer.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    Ok((Carrier::Spdy, answer))
}

fn negotiate_websocket(headers: &HeaderMap) -> Result<(Carrier, HeaderMap), Refusal> {
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| Refusal::bad_request("Sec-WebSocket-Key is missing"))?;
    let offered = words(headers, "sec-websocket-protocol");
    let mut answer = HeaderMap::new();
    let carrier = match offered.is_empty() {
        true => Carrier::WebSocket(Protocol::Plain),
        false => {
            let fitting = SUBPROTOCOLS
                .iter()
                .find(|(name, _)| offered.iter().any(|offer| offer == name));
            let (name, carrier) = fitting.ok_or_else(|| {
                Refusal::bad_request(format!(
                    "unable to upgrade: none of the protocols {offered:?} is supported"
                ))
            })?;
            answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
            *carrier
        }
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    answer.insert(
        header::SEC_WEBSOCKET_ACCEPT,
        accept.map_err(|error| Refusal::internal(error.to_string()))?,
    );
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    Ok((carrier, answer))
}

fn words(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|word| word.trim().to_owned())
        .collect()
}
