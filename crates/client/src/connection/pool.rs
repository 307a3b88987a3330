//! Connections that are open, and who uses them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;

use super::dial::{Dialer, Protocol};
use crate::{Backoff, Body, TransportError};

/// The streams that are opened on one HTTP/2 connection before another connection is opened; upstream's API server
/// allows 1,000, others 100.
const MAX_STREAMS: usize = 90;
/// The HTTP/1.1 connections that are kept open while nobody uses them.
const MAX_IDLE: usize = 32;
/// The pauses before connecting again after that failed.
const RECONNECT: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

/// A connection in the hands of one request.
pub(super) enum Lease {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(Shared),
}

#[derive(Default)]
pub(super) struct Pool {
    open: Arc<Mutex<Open>>,
    /// Held while connecting, so that many requests wait for one connection instead of opening one each.
    dialing: tokio::sync::Mutex<Dialing>,
}

#[derive(Default)]
struct Open {
    shared: Vec<Shared>,
    idle: Vec<http1::SendRequest<Full<Bytes>>>,
}

#[derive(Default)]
struct Dialing {
    failures: u32,
}

/// An HTTP/2 connection; its clones count its streams together.
#[derive(Clone)]
pub(super) struct Shared {
    sender: http2::SendRequest<Full<Bytes>>,
    streams: Arc<AtomicUsize>,
}

impl Lease {
    pub fn http2(sender: http2::SendRequest<Full<Bytes>>) -> Lease {
        Lease::Http2(Shared {
            sender,
            streams: Arc::new(AtomicUsize::new(0)),
        })
    }

    pub fn protocol(&self) -> Protocol {
        match self {
            Lease::Http1(_) => Protocol::Http1,
            Lease::Http2(_) => Protocol::Http2,
        }
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Lease::Http1(sender) => sender.send_request(request).await,
            Lease::Http2(shared) => shared.sender.send_request(request).await,
        }
    }
}

impl Pool {
    /// A connection that is open and has room.
    pub fn take(&self) -> Option<Lease> {
        let mut open = self.open.lock();
        open.shared.retain(|shared| !shared.sender.is_closed());
        let roomy = open
            .shared
            .iter()
            .find(|shared| shared.streams.load(Ordering::Relaxed) < MAX_STREAMS);
        if let Some(shared) = roomy {
            return Some(Lease::Http2(shared.clone()));
        }
        while let Some(sender) = open.idle.pop() {
            if sender.is_ready() {
                return Some(Lease::Http1(sender));
            }
        }
        None
    }

    /// Takes a connection that refused a request out of use; its other streams end by themselves.
    pub fn discard(&self, lease: &Lease) {
        if let Lease::Http2(shared) = lease {
            let same = |known: &Shared| Arc::ptr_eq(&known.streams, &shared.streams);
            self.open.lock().shared.retain(|known| !same(known));
        }
    }

    /// Takes all connections out of use; what is under way on them ends by itself.
    pub fn clear(&self) {
        let mut open = self.open.lock();
        open.shared.clear();
        open.idle.clear();
    }

    /// Opens a connection, or uses the one that another request has opened meanwhile.
    pub async fn connect(&self, dialer: &Dialer) -> Result<Lease, TransportError> {
        let mut dialing = self.dialing.lock().await;
        if let Some(lease) = self.take() {
            return Ok(lease);
        }
        if dialing.failures > 0 {
            tokio::time::sleep(RECONNECT.wait(dialing.failures - 1)).await;
        }
        match dialer.dial(&[Protocol::Http2, Protocol::Http1]).await {
            Ok(lease) => {
                dialing.failures = 0;
                if let Lease::Http2(shared) = &lease {
                    self.open.lock().shared.push(shared.clone());
                }
                Ok(lease)
            }
            Err(error) => {
                dialing.failures = dialing.failures.saturating_add(1);
                tracing::debug!(server = dialer.target(), %error, "could not connect");
                Err(error)
            }
        }
    }

    /// The body of an answer, which holds its connection until it has been read.
    pub fn lend(&self, lease: Lease, body: Incoming) -> Body {
        let hold = match lease {
            Lease::Http1(sender) => Hold::Alone(Some(sender), self.open.clone()),
            Lease::Http2(shared) => {
                shared.streams.fetch_add(1, Ordering::Relaxed);
                Hold::Stream(shared.streams)
            }
        };
        Lent { body, hold }.boxed_unsync()
    }
}

struct Lent {
    body: Incoming,
    hold: Hold,
}

enum Hold {
    Alone(Option<http1::SendRequest<Full<Bytes>>>, Arc<Mutex<Open>>),
    Stream(Arc<AtomicUsize>),
}

impl hyper::body::Body for Lent {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            self.hold.give_back();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(TransportError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Hold {
    /// Puts an HTTP/1.1 connection back once its answer has been read to the end.
    fn give_back(&mut self) {
        let Hold::Alone(sender, open) = self else { return };
        let Some(mut sender) = sender.take() else { return };
        let open = open.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                let mut open = open.lock();
                if open.idle.len() < MAX_IDLE {
                    open.idle.push(sender);
                }
            }
        });
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if hyper::body::Body::is_end_stream(&self.body) {
            self.hold.give_back();
        }
        if let Hold::Stream(streams) = &self.hold {
            streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
