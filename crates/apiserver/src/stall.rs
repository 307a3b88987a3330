//! Clients that stop reading hold neither memory nor a connection for ever.
//!
//! Two things can get stuck: a connection whose other end takes nothing more ([`PatientStream`] ends it), and one
//! response among others on a connection that goes on ([`Stalls`] drops its body, and with it the snapshot or the place
//! in a ring that it was made from). What waits to be sent is bounded in both: bodies are made while they are sent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio::time::Sleep;

use crate::body::{Body, BoxError};

/// How long a client may take to read what is there for it.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How often bodies are looked at.
pub const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// All bodies that are made while they are sent.
#[derive(Default)]
pub struct Stalls {
    slots: Mutex<Vec<Weak<Slot>>>,
}

struct Slot(Mutex<Guarded>);

struct Guarded {
    /// `None` once the client was given up.
    body: Option<Body>,
    /// When the transport took the last chunk; `None` while it waits for the next one.
    taken: Option<Instant>,
}

struct GuardedBody(Arc<Slot>);

impl Stalls {
    /// The body, dropped when nobody takes its next chunk for [`PATIENCE`].
    pub fn guard(&self, body: Body) -> Body {
        let guarded = Guarded {
            body: Some(body),
            taken: Some(Instant::now()),
        };
        let slot = Arc::new(Slot(Mutex::new(guarded)));
        self.slots.lock().push(Arc::downgrade(&slot));
        GuardedBody(slot).boxed_unsync()
    }

    /// Gives up the bodies that have been stuck for too long; returns how many.
    pub fn sweep(&self, now: Instant) -> usize {
        let mut stuck = Vec::new();
        self.slots.lock().retain(|slot| {
            let Some(slot) = slot.upgrade() else { return false };
            let mut guarded = slot.0.lock();
            if guarded
                .taken
                .is_some_and(|taken| now.saturating_duration_since(taken) > PATIENCE)
            {
                stuck.extend(guarded.body.take());
            }
            guarded.body.is_some()
        });
        stuck.len()
    }

    pub async fn run(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let given_up = self.sweep(Instant::now());
            if given_up > 0 {
                tracing::debug!(given_up, "Ended responses whose clients had stopped reading");
            }
        }
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut guarded = self.0.0.lock();
        let Some(body) = &mut guarded.body else {
            return Poll::Ready(Some(Err(stuck().into())));
        };
        let polled = Pin::new(body).poll_frame(context);
        guarded.taken = matches!(polled, Poll::Ready(Some(Ok(_)))).then(Instant::now);
        polled
    }
}

/// A connection that fails when nothing can be written for a while.
pub struct PatientStream<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    giving_up: Option<Pin<Box<Sleep>>>,
}

impl<S> PatientStream<S> {
    pub fn new(stream: S, patience: Duration) -> PatientStream<S> {
        PatientStream {
            stream,
            patience,
            giving_up: None,
        }
    }

    fn bound<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.giving_up = None;
            return polled;
        }
        let patience = self.patience;
        let sleep = self
            .giving_up
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(Err(stuck()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PatientStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PatientStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.bound(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.bound(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        this.bound(context, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(context);
        this.bound(context, polled)
    }
}

fn stuck() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client has stopped reading")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, stream};
    use http_body_util::StreamBody;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A body of two chunks that tells when it is dropped.
    fn body(alive: &Arc<()>) -> Body {
        let alive = alive.clone();
        let chunks = futures_util::StreamExt::map(stream::iter(["one", "two"]), move |chunk| {
            let _held = &alive;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(chunk.as_bytes())))
        });
        StreamBody::new(chunks).map_err(BoxError::from).boxed_unsync()
    }

    #[tokio::test]
    async fn a_response_that_nobody_reads_is_dropped_and_ends_in_an_error() {
        let (stalls, alive) = (Stalls::default(), Arc::new(()));
        let mut guarded = stalls.guard(body(&alive));
        assert!(guarded.frame().await.is_some_and(|frame| frame.is_ok()));
        assert_eq!(stalls.sweep(Instant::now()), 0);
        assert_eq!(stalls.sweep(Instant::now() + PATIENCE * 2), 1);
        assert_eq!(Arc::strong_count(&alive), 1, "what it was made from is gone");
        assert!(guarded.frame().await.is_some_and(|frame| frame.is_err()));
    }

    #[tokio::test]
    async fn a_response_that_waits_for_its_next_chunk_is_not_stuck() {
        let stalls = Stalls::default();
        let quiet = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut guarded = stalls.guard(quiet.map_err(BoxError::from).boxed_unsync());
        assert!(guarded.frame().now_or_never().is_none());
        assert_eq!(stalls.sweep(Instant::now() + PATIENCE * 2), 0);
        drop(guarded);
        stalls.sweep(Instant::now());
        assert!(stalls.slots.lock().is_empty());
    }

    #[tokio::test]
    async fn a_connection_whose_other_end_takes_nothing_fails() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = PatientStream::new(near, Duration::from_millis(20));
        near.write_all(b"1234").await.expect("there is room");
        let error = near.write_all(b"5").await.expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut taken = [0; 4];
        far.read_exact(&mut taken).await.expect("what fitted");
        near.write_all(b"5").await.expect("there is room again");
    }
}
