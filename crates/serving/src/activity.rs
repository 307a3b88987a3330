//! Connections that nobody uses are ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{AnyError, HEADER_TIMEOUT, IDLE_TIMEOUT};

/// How long a connection that is being closed may take.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a connection is in use: by requests that are being answered, their bodies included.
#[derive(Clone)]
pub struct Activity(Arc<Mutex<Use>>);

struct Use {
    requests: usize,
    has_asked: bool,
    since: Instant,
}

/// A request that is being answered.
pub struct Busy(Activity);

impl Default for Activity {
    fn default() -> Activity {
        Activity(Arc::new(Mutex::new(Use {
            requests: 0,
            has_asked: false,
            since: Instant::now(),
        })))
    }
}

impl Activity {
    pub fn begin(&self) -> Busy {
        let mut used = self.0.lock();
        used.requests += 1;
        used.has_asked = true;
        Busy(self.clone())
    }

    /// How much longer the connection may stay as it is; none if it is in use.
    fn left(&self) -> Option<Duration> {
        let used = self.0.lock();
        let patience = if used.has_asked { IDLE_TIMEOUT } else { HEADER_TIMEOUT };
        (used.requests == 0).then(|| patience.saturating_sub(used.since.elapsed()))
    }

    async fn idle(&self) {
        loop {
            match self.left() {
                Some(Duration::ZERO) => return,
                left => tokio::time::sleep(left.unwrap_or(HEADER_TIMEOUT)).await,
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut used = self.0.0.lock();
        used.requests -= 1;
        used.since = Instant::now();
    }
}

impl Busy {
    /// The answer is under way until its body is.
    pub fn until_sent<B>(self, response: Response<B>) -> Response<Sending<B>> {
        response.map(|body| Sending { body, _busy: self })
    }
}

/// A body that is being sent.
pub struct Sending<B> {
    body: B,
    _busy: Busy,
}

impl<B: http_body::Body + Unpin> http_body::Body for Sending<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// Serves one connection until it ends, or has had no request for a while.
pub async fn serve<I, S, B>(
    builder: &auto::Builder<TokioExecutor>,
    stream: I,
    service: S,
    activity: &Activity,
) -> Result<(), AnyError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<AnyError>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<AnyError>,
{
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return done,
        () = activity.idle() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::time::timeout(CLOSING_TIMEOUT, connection)
        .await
        .unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_when_nothing_was_asked_for_a_while() {
        let activity = Activity::default();
        let busy = activity.begin();
        assert_eq!(activity.left(), None);
        drop(busy);
        assert!(activity.left().is_some_and(|left| left > HEADER_TIMEOUT));
        assert!(Activity::default().left().is_some_and(|left| left <= HEADER_TIMEOUT));
    }
}
