//! The client's side of a command or a forwarded port: numbered channels, over a WebSocket or over SPDY streams.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::spdy;

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const STATUS: u8 = 3;
pub const RESIZE: u8 = 4;

/// The channel on which v5 says that another one is closed.
const CLOSE_CHANNEL: u8 = 255;
/// Messages from SPDY streams that wait to be taken.
const WAITING: usize = 16;

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

type Socket = WebSocketStream<Box<dyn Io>>;

/// How channels are written into WebSocket messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    V5,
    V4,
    V4Base64,
    Plain,
    PlainBase64,
}

impl Protocol {
    fn is_text(self) -> bool {
        matches!(self, Protocol::V4Base64 | Protocol::PlainBase64)
    }

    /// From v4 on the end of a command is a Status and not just words.
    fn has_status(self) -> bool {
        !matches!(self, Protocol::Plain | Protocol::PlainBase64)
    }
}

/// Both directions of a connection.
pub struct Channels {
    pub receiver: Receiver,
    pub sender: Sender,
}

pub enum Receiver {
    WebSocket(Protocol, SplitStream<Socket>),
    Spdy(mpsc::Receiver<Received>),
}

pub enum Sender {
    WebSocket(Protocol, SplitSink<Socket, Message>),
    Spdy(BTreeMap<u8, spdy::session::Writer>),
}

/// What the client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Data(u8, Bytes),
    /// The client sends nothing more on this channel.
    Closed(u8),
}

impl Channels {
    pub async fn over_websocket(io: impl Io, protocol: Protocol) -> Channels {
        let (sink, stream) = socket(io).await.split();
        Channels {
            receiver: Receiver::WebSocket(protocol, stream),
            sender: Sender::WebSocket(protocol, sink),
        }
    }

    /// Channels that are streams, by the channel's number.
    pub fn over_spdy(streams: BTreeMap<u8, spdy::Stream>) -> Channels {
        let (received, receiver) = mpsc::channel(WAITING);
        let mut writers = BTreeMap::new();
        for (channel, stream) in streams {
            writers.insert(channel, stream.writer);
            if matches!(channel, STDIN | RESIZE) {
                tokio::spawn(pass_on(channel, stream.reader, received.clone()));
            }
        }
        Channels {
            receiver: Receiver::Spdy(receiver),
            sender: Sender::Spdy(writers),
        }
    }
}

pub async fn socket(io: impl Io) -> Socket {
    WebSocketStream::from_raw_socket(Box::new(io) as Box<dyn Io>, Role::Server, None).await
}

async fn pass_on(channel: u8, mut reader: spdy::session::Reader, received: mpsc::Sender<Received>) {
    while let Some(data) = reader.next().await {
        if received.send(Received::Data(channel, data)).await.is_err() {
            return;
        }
    }
    let _ = received.send(Received::Closed(channel)).await;
}

impl Receiver {
    /// The next message; none when the client has gone.
    pub async fn next(&mut self) -> Option<Received> {
        match self {
            Receiver::Spdy(received) => received.recv().await,
            Receiver::WebSocket(protocol, stream) => next_message(*protocol, stream).await,
        }
    }
}

async fn next_message(protocol: Protocol, stream: &mut SplitStream<Socket>) -> Option<Received> {
    loop {
        let bytes = match stream.next().await?.ok()? {
            Message::Binary(bytes) if !protocol.is_text() => bytes,
            Message::Text(text) if protocol.is_text() => decode_text(text.as_str())?,
            Message::Close(_) => return None,
            // Pings are answered below us; anything else is not of this protocol.
            _ => continue,
        };
        let (channel, data) = (*bytes.first()?, bytes.slice(1..));
        if channel == CLOSE_CHANNEL && protocol == Protocol::V5 {
            return data.first().map(|closed| Received::Closed(*closed));
        }
        return Some(Received::Data(channel, data));
    }
}

impl Sender {
    pub fn has_status(&self) -> bool {
        match self {
            Sender::WebSocket(protocol, _) => protocol.has_status(),
            Sender::Spdy(_) => true,
        }
    }

    pub async fn send(&mut self, channel: u8, data: &[u8]) -> io::Result<()> {
        match self {
            Sender::WebSocket(protocol, sink) => {
                let message = match protocol.is_text() {
                    true => Message::text(format!("{channel}{}", STANDARD.encode(data))),
                    false => Message::binary([&[channel], data].concat()),
                };
                sink.send(message).await.map_err(io::Error::other)
            }
            Sender::Spdy(writers) => match writers.get_mut(&channel) {
                Some(writer) => writer.send(data).await,
                None => Ok(()),
            },
        }
    }

    /// Says that everything has been said.
    pub async fn close(mut self) {
        match &mut self {
            Sender::WebSocket(_, sink) => {
                let frame = CloseFrame {
                    code: CloseCode::Normal,
                    reason: "".into(),
                };
                // The client may have gone first.
                let _ = sink.send(Message::Close(Some(frame))).await;
                let _ = sink.flush().await;
            }
            Sender::Spdy(writers) => {
                for writer in writers.values_mut() {
                    writer.finish().await;
                }
            }
        }
    }
}

/// The channel as a digit, then base64.
fn decode_text(text: &str) -> Option<Bytes> {
    let channel = text.chars().next()?.to_digit(10)? as u8;
    let data = STANDARD.decode(text.get(1..)?).ok()?;
    Some(Bytes::from([&[channel], data.as_slice()].concat()))
}

/// A WebSocket as a plain connection: binary messages are its bytes. This is how SPDY is tunnelled.
pub struct Tunnel {
    socket: Socket,
    rest: Bytes,
}

impl Tunnel {
    pub async fn new(io: impl Io) -> Tunnel {
        Tunnel {
            socket: socket(io).await,
            rest: Bytes::new(),
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None | Some(Ok(Message::Close(_)))) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Ok(Message::Binary(bytes)))) => self.rest = bytes,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let size = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..size]);
        self.rest.advance(size);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut socket = Pin::new(&mut self.socket);
        match socket.as_mut().poll_ready(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(io::Error::other(error))),
            Poll::Ready(Ok(())) => {
                let sent = socket.start_send(Message::binary(data.to_vec()));
                Poll::Ready(sent.map(|()| data.len()).map_err(io::Error::other))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(io::Error::other)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_close(cx) {
            Poll::Ready(Err(tungstenite::Error::ConnectionClosed)) => Poll::Ready(Ok(())),
            other => other.map_err(io::Error::other),
        }
    }
}
