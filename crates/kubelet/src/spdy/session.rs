//! A connection and its streams.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::frame::{DATA_BYTES, Frame};
use super::headers::{Decoder, Encoder, Headers};

/// Frames that wait to be written; then whoever writes waits.
const OUTGOING: usize = 16;
/// Blocks that a stream holds for a slow reader. Without flow control the whole connection waits then.
const INCOMING: usize = 64;
/// Streams the other side may have opened without us taking them.
const WAITING_STREAMS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens streams with odd numbers.
    Client,
    Server,
}

/// Opens streams. The connection is closed when the session and all of its streams are dropped.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Frame>,
}

struct Shared {
    next: AtomicU32,
    readers: Mutex<HashMap<u32, mpsc::Sender<Bytes>>>,
}

/// One stream, in both directions.
pub struct Stream {
    pub headers: Headers,
    pub reader: Reader,
    pub writer: Writer,
}

pub struct Reader(mpsc::Receiver<Bytes>);

pub struct Writer {
    id: u32,
    outgoing: mpsc::Sender<Frame>,
    finished: bool,
}

/// Runs a connection. The receiver yields the streams that the other side opens.
pub fn start<Io>(io: Io, role: Role) -> io::Result<(Session, mpsc::Receiver<Stream>)>
where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (reader, writer) = tokio::io::split(io);
    let (outgoing, frames) = mpsc::channel(OUTGOING);
    let (opened, streams) = mpsc::channel(WAITING_STREAMS);
    let shared = Arc::new(Shared {
        next: AtomicU32::new(if role == Role::Client { 1 } else { 2 }),
        readers: Mutex::default(),
    });
    let encoder = Encoder::new()?;
    tokio::spawn(write_all(writer, frames, encoder));
    // Weakly, so that reading does not keep the writing side open.
    tokio::spawn(read_all(reader, shared.clone(), outgoing.downgrade(), opened));
    Ok((Session { shared, outgoing }, streams))
}

impl Session {
    pub async fn open(&self, headers: Headers) -> io::Result<Stream> {
        let id = self.shared.next.fetch_add(2, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel(INCOMING);
        self.shared.readers.lock().insert(id, sender);
        let frame = Frame::Open {
            stream: id,
            headers: headers.clone(),
            fin: false,
        };
        self.outgoing.send(frame).await.map_err(|_| closed())?;
        Ok(Stream {
            headers,
            reader: Reader(receiver),
            writer: Writer {
                id,
                outgoing: self.outgoing.clone(),
                finished: false,
            },
        })
    }
}

impl Stream {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

impl Reader {
    /// The next block; none at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

impl Writer {
    pub async fn send(&mut self, data: &[u8]) -> io::Result<()> {
        for part in data.chunks(DATA_BYTES) {
            let frame = Frame::Data {
                stream: self.id,
                data: Bytes::copy_from_slice(part),
                fin: false,
            };
            self.outgoing.send(frame).await.map_err(|_| closed())?;
        }
        Ok(())
    }

    /// Nothing more is written.
    pub async fn finish(&mut self) {
        if self.finished {
            return;
        }
        self.finished = true;
        let frame = Frame::Data {
            stream: self.id,
            data: Bytes::new(),
            fin: true,
        };
        let _ = self.outgoing.send(frame).await;
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed")
}

async fn write_all<Io: AsyncWrite>(mut io: WriteHalf<Io>, mut frames: mpsc::Receiver<Frame>, mut encoder: Encoder) {
    let mut buffer = BytesMut::new();
    while let Some(frame) = frames.recv().await {
        buffer.clear();
        if frame.encode(&mut encoder, &mut buffer).is_err() {
            break;
        }
        while let Ok(frame) = frames.try_recv() {
            if frame.encode(&mut encoder, &mut buffer).is_err() {
                return;
            }
        }
        if io.write_all(&buffer).await.is_err() || io.flush().await.is_err() {
            return;
        }
    }
    let _ = io.shutdown().await;
}

async fn read_all<Io: AsyncRead>(
    mut io: ReadHalf<Io>,
    shared: Arc<Shared>,
    outgoing: mpsc::WeakSender<Frame>,
    opened: mpsc::Sender<Stream>,
) {
    let mut decoder = Decoder::new();
    while let Ok(Some(frame)) = Frame::read(&mut io, &mut decoder).await {
        match frame {
            Frame::Open { stream, headers, fin } => {
                let Some(outgoing) = outgoing.upgrade() else { break };
                if accept(&shared, stream, headers, fin, outgoing, &opened).await.is_err() {
                    break;
                }
            }
            Frame::Data { stream, data, fin } => {
                let reader = shared.readers.lock().get(&stream).cloned();
                if let Some(reader) = reader.filter(|_| !data.is_empty()) {
                    // Nobody may want it any more.
                    let _ = reader.send(data).await;
                }
                if fin {
                    shared.readers.lock().remove(&stream);
                }
            }
            Frame::Reset { stream, .. } => _ = shared.readers.lock().remove(&stream),
            Frame::Ping(id) => {
                let Some(outgoing) = outgoing.upgrade() else { break };
                let _ = outgoing.send(Frame::Ping(id)).await;
            }
            Frame::GoAway => break,
            Frame::Reply { .. } | Frame::Other => {}
        }
    }
    // Every stream sees its end.
    shared.readers.lock().clear();
}

async fn accept(
    shared: &Shared,
    id: u32,
    headers: Headers,
    fin: bool,
    outgoing: mpsc::Sender<Frame>,
    opened: &mpsc::Sender<Stream>,
) -> Result<(), ()> {
    let (sender, receiver) = mpsc::channel(INCOMING);
    if !fin {
        shared.readers.lock().insert(id, sender);
    }
    let reply = Frame::Reply {
        stream: id,
        headers: Headers::new(),
    };
    outgoing.send(reply).await.map_err(|_| ())?;
    let stream = Stream {
        headers,
        reader: Reader(receiver),
        writer: Writer {
            id,
            outgoing,
            finished: false,
        },
    };
    opened.send(stream).await.map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn streams_carry_bytes_both_ways_and_end_one_way_at_a_time() {
        let (near, far) = tokio::io::duplex(1024);
        let (client, _) = start(near, Role::Client).unwrap();
        let (_server, mut streams) = start(far, Role::Server).unwrap();
        let mut ours = client
            .open(vec![("streamtype".to_owned(), "stdin".to_owned())])
            .await
            .unwrap();
        let mut theirs = streams.recv().await.unwrap();
        assert_eq!(theirs.header("streamType"), Some("stdin"));

        let block = vec![7; 100_000];
        let sent = block.clone();
        let writing = tokio::spawn(async move {
            ours.writer.send(&sent).await.unwrap();
            ours.writer.finish().await;
            ours
        });
        let mut received = Vec::new();
        while let Some(data) = theirs.reader.next().await {
            received.extend_from_slice(&data);
        }
        assert_eq!(received, block);
        let mut ours = writing.await.unwrap();
        theirs.writer.send(b"answer").await.unwrap();
        assert_eq!(ours.reader.next().await.as_deref(), Some(b"answer".as_slice()));
        drop(theirs);
        drop((_server, streams));
        assert_eq!(
            ours.reader.next().await,
            None,
            "the connection ended with its last stream"
        );
    }
}
