//! Logs over a WebSocket. Nodes serve logs as plain answers; here each piece becomes a message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{self, Message};
use tracing::debug;

use api::Error;

use crate::body::{self, Body};

/// How pieces are written into messages, by subprotocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Binary,
    Base64,
}

const SUBPROTOCOLS: &[(&str, Writing)] = &[
    ("binary.k8s.io", Writing::Binary),
    ("base64.binary.k8s.io", Writing::Base64),
];

/// Whether a client asks for a WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// Answers a request for a WebSocket with a log that a node has begun to send.
pub fn answer(headers: &HeaderMap, client: OnUpgrade, log: Incoming) -> Result<Response<Body>, Error> {
    let key = headers.get(SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| Error::bad_request("Sec-WebSocket-Key is missing"))?;
    let (protocol, writing) = negotiate(headers)?;
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    answer.insert(
        SEC_WEBSOCKET_ACCEPT,
        accept.map_err(|error| Error::internal(error.to_string()))?,
    );
    if !protocol.is_empty() {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    tokio::spawn(async move {
        if let Err(error) = send(client, log, writing).await {
            debug!(%error, "a log over a WebSocket ended");
        }
    });
    Ok(response)
}

fn negotiate(headers: &HeaderMap) -> Result<(&'static str, Writing), Error> {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered: Vec<&str> = offered
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    if offered.is_empty() {
        return Ok(("", Writing::Binary));
    }
    let known = SUBPROTOCOLS.iter().find(|(name, _)| offered.contains(name));
    known.copied().ok_or_else(|| {
        Error::bad_request(format!(
            "unable to upgrade: logs are sent as binary.k8s.io or base64.binary.k8s.io, not {offered:?}"
        ))
    })
}

async fn send(
    client: OnUpgrade,
    mut log: Incoming,
    writing: Writing,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let client = TokioIo::new(client.await?);
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, None).await;
    let (mut sink, mut stream) = socket.split();
    loop {
        tokio::select! {
            frame = log.frame() => match frame {
                Some(frame) => {
                    if let Ok(piece) = frame?.into_data() {
                        sink.send(message(piece, writing)).await?;
                    }
                }
                None => break,
            },
            // Nothing that a client says matters but that it goes; pings are answered below us.
            heard = stream.next() => match heard {
                Some(Ok(message)) if !message.is_close() => {}
                _ => return Ok(()),
            },
        }
    }
    match sink.close().await {
        Err(tungstenite::Error::ConnectionClosed) => Ok(()),
        other => Ok(other?),
    }
}

fn message(piece: Bytes, writing: Writing) -> Message {
    match writing {
        Writing::Binary => Message::Binary(piece),
        Writing::Base64 => Message::Text(STANDARD.encode(&piece).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subprotocols_are_those_of_one_stream() {
        let negotiated = |offer: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(offer) = offer {
                headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offer));
            }
            negotiate(&headers).ok()
        };
        assert_eq!(negotiated(None), Some(("", Writing::Binary)));
        assert_eq!(
            negotiated(Some("binary.k8s.io")),
            Some(("binary.k8s.io", Writing::Binary))
        );
        assert_eq!(
            negotiated(Some("v9, base64.binary.k8s.io")),
            Some(("base64.binary.k8s.io", Writing::Base64))
        );
        assert_eq!(negotiated(Some("v4.channel.k8s.io")), None);
    }
}
