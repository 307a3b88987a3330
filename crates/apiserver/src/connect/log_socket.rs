//! Logs over a WebSocket. Nodes serve logs as plain answers; here each piece becomes a message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{self, Message};
use tracing::debug;

use api::Error;

use crate::body::Body;
use crate::websocket;

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

/// Answers a request for a WebSocket with a log that a node has begun to send.
pub fn answer(headers: &HeaderMap, client: OnUpgrade, log: Incoming) -> Result<Response<Body>, Error> {
    let (protocol, writing) = negotiate(headers)?;
    let response = websocket::accept(headers, protocol)?;
    tokio::spawn(async move {
        if let Err(error) = send(client, log, writing).await {
            debug!(%error, "A log stream over a WebSocket ended with an error");
        }
    });
    Ok(response)
}

fn negotiate(headers: &HeaderMap) -> Result<(&'static str, Writing), Error> {
    let offered = websocket::offered_protocols(headers);
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
    use http::HeaderValue;
    use http::header::SEC_WEBSOCKET_PROTOCOL;

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
