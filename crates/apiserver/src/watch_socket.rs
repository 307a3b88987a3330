//! Watches over WebSockets: one message for each event. Nothing is expected of the client but that it goes.

use api::{Error, Reason};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::ORIGIN;
use http::{HeaderMap, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tracing::debug;

use crate::body::{Body, BoxError};
use crate::watching::Frames;
use crate::websocket;

/// A client has nothing to say that is longer.
const MAX_HEARD_BYTES: usize = 64 * 1024;

/// Answers a watch with a WebSocket.
pub fn answer(headers: &HeaderMap, client: OnUpgrade, frames: Frames) -> Result<Response<Body>, Error> {
    // As upstream: only what a browser could have sent, from wherever it says.
    if headers.get(ORIGIN).is_none_or(|origin| origin.is_empty()) {
        return Err(Error::new(Reason::Forbidden, "null origin"));
    }
    let protocol = match websocket::offered_protocols(headers).as_slice() {
        [] => String::new(),
        [protocol] => (*protocol).to_owned(),
        _ => {
            return Err(Error::bad_request(
                "bad sub-protocol: a watch takes one, whatever it is",
            ));
        }
    };
    let response = websocket::accept(headers, &protocol)?;
    tokio::spawn(async move {
        if let Err(error) = send(client, frames).await {
            debug!(%error, "A watch over a WebSocket ended with an error");
        }
    });
    Ok(response)
}

async fn send(client: OnUpgrade, mut frames: Frames) -> Result<(), BoxError> {
    let client = TokioIo::new(client.await?);
    let bounds = WebSocketConfig::default()
        .max_message_size(Some(MAX_HEARD_BYTES))
        .max_frame_size(Some(MAX_HEARD_BYTES));
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(bounds)).await;
    let (mut sink, mut stream) = socket.split();
    loop {
        tokio::select! {
            event = frames.next_message() => match event {
                Some(event) => sink.send(message(event, frames.is_text())).await?,
                None => break,
            },
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

fn message(event: Bytes, is_text: bool) -> Message {
    match is_text.then(|| String::from_utf8(event.to_vec())) {
        Some(Ok(text)) => Message::Text(text.into()),
        _ => Message::Binary(event),
    }
}
