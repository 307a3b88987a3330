//! How many connections a server keeps, and for whom.
//!
//! Whoever reaches a port can open connections and say nothing. So those of strangers are few, in all and for each address,
//! and where there are too many, the one that has said nothing for the longest time makes room: one who means to say
//! something does so at once. A connection whose client was let in is no stranger's any more and counts for itself.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

/// What a server takes at most.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections of strangers.
    pub strangers: usize,
    /// Those from one address.
    pub strangers_of_one: usize,
    /// Connections of clients that were let in.
    pub known: usize,
}

impl ConnectionLimits {
    pub const DEFAULT: ConnectionLimits = ConnectionLimits {
        strangers: 512,
        strangers_of_one: 64,
        known: 4096,
    };
}

/// A handshake takes milliseconds. Nobody is waited for longer than this, in the handshake or for a request's headers.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection without a request is closed after this long, as upstream's kubelet does it.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a connection that is being closed may take.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
/// As many bytes of headers as upstream's servers take.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// Requests at a time on one connection.
const MAX_STREAMS: u32 = 100;
/// Requests that a client takes back before they were looked at; with more the connection is closed.
const MAX_PENDING_RESETS: usize = 20;
/// Requests that had to be refused by the protocol; with more the connection is closed.
const MAX_ERROR_RESETS: usize = 128;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The connections of one server.
pub struct Guard {
    limits: ConnectionLimits,
    state: Mutex<State>,
    known: AtomicUsize,
    next: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    strangers: BTreeMap<u64, Stranger>,
    by_address: HashMap<IpAddr, usize>,
}

struct Stranger {
    address: IpAddr,
    /// Dropping it tells the connection to end.
    leave: oneshot::Sender<()>,
}

/// A connection's place. It is given back when all of them are dropped.
pub struct Place {
    guard: Arc<Guard>,
    number: u64,
    /// What would have told the connection to end, once its client was let in.
    known: Mutex<Option<oneshot::Sender<()>>>,
}

impl Guard {
    pub fn new(limits: ConnectionLimits) -> Arc<Guard> {
        Arc::new(Guard {
            limits,
            state: Mutex::default(),
            known: AtomicUsize::new(0),
            next: AtomicU64::new(0),
        })
    }

    /// A place for a new connection, and what ends when the connection has to. There is always one: another stranger
    /// makes room.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> (Arc<Place>, oneshot::Receiver<()>) {
        // One machine has many addresses of version 6, but seldom more than one network.
        let address = block_of(address);
        let (leave, left) = oneshot::channel();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state
            .by_address
            .get(&address)
            .is_some_and(|count| *count >= self.limits.strangers_of_one)
        {
            state.dismiss_oldest(Some(address));
        }
        if state.strangers.len() >= self.limits.strangers {
            let busiest = state.by_address.iter().max_by_key(|(_, count)| **count);
            let busiest = busiest.map(|(address, _)| *address);
            state.dismiss_oldest(busiest);
        }
        state.strangers.insert(number, Stranger { address, leave });
        *state.by_address.entry(address).or_default() += 1;
        let place = Place {
            guard: self.clone(),
            number,
            known: Mutex::default(),
        };
        (Arc::new(place), left)
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.state.lock().strangers.len(), self.known.load(Ordering::Relaxed))
    }
}

impl State {
    fn dismiss_oldest(&mut self, address: Option<IpAddr>) {
        let mut strangers = self.strangers.iter();
        let oldest = strangers.find(|(_, stranger)| address.is_none_or(|address| stranger.address == address));
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&stranger.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&stranger.address);
            }
        }
        Some(stranger)
    }
}

impl Place {
    /// The client was let in. False if there are too many of those already, or the connection has been given up.
    pub fn let_in(&self) -> bool {
        let mut known = self.known.lock();
        if known.is_some() {
            return true;
        }
        if self.guard.known.fetch_add(1, Ordering::Relaxed) < self.guard.limits.known
            && let Some(stranger) = self.guard.state.lock().remove(self.number)
        {
            *known = Some(stranger.leave);
            return true;
        }
        self.guard.known.fetch_sub(1, Ordering::Relaxed);
        false
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.known.lock().take() {
            Some(_) => _ = self.guard.known.fetch_sub(1, Ordering::Relaxed),
            None => _ = self.guard.state.lock().remove(self.number),
        }
    }
}

/// The block that addresses of one client come from.
fn block_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

/// A server of HTTP/1 and HTTP/2 that waits for nobody and bounds what one connection can ask for.
pub fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .max_header_list_size(MAX_HEADER_BYTES as u32)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

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

type AnyError = Box<dyn std::error::Error + Send + Sync>;

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

    const LIMITS: ConnectionLimits = ConnectionLimits {
        strangers: 6,
        strangers_of_one: 3,
        known: 2,
    };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_stranger_who_waits_longest_makes_room() {
        let guard = Guard::new(LIMITS);
        let mut all: Vec<_> = (0..4).map(|_| guard.enter(address(1))).collect();
        assert!(
            all[0]
                .1
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Closed)
        );
        assert!(
            all[1..]
                .iter_mut()
                .all(|(_, left)| left.try_recv() == Err(oneshot::error::TryRecvError::Empty))
        );
        assert_eq!(guard.counts(), (3, 0));
        // Whoever has most connections loses one when there are too many in all.
        all.extend([2, 3, 4].map(|last| guard.enter(address(last))));
        assert_eq!(guard.counts(), (6, 0));
        all.push(guard.enter(address(5)));
        assert_eq!(guard.counts(), (6, 0));
        assert_eq!(all[1].1.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        drop(all);
        assert_eq!(guard.counts(), (0, 0));
        assert!(guard.state.lock().by_address.is_empty());
    }

    #[test]
    fn a_client_that_was_let_in_is_never_told_to_leave() {
        let guard = Guard::new(LIMITS);
        let (place, mut left) = guard.enter(address(1));
        assert!(place.let_in() && place.let_in());
        let strangers: Vec<_> = (0..20).map(|_| guard.enter(address(1))).collect();
        assert_eq!(left.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert_eq!(guard.counts(), (3, 1));
        assert!(!strangers[0].0.let_in(), "it was told to leave");
        assert!(strangers[19].0.let_in());
        assert!(!strangers[18].0.let_in(), "there are too many");
        drop(strangers);
        assert_eq!(guard.counts(), (0, 1));
        drop(place);
        assert_eq!(guard.counts(), (0, 0));
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let block = |text: &str| block_of(text.parse().unwrap());
        assert_eq!(block("2001:db8::1"), block("2001:db8::ffff:1"));
        assert_ne!(block("2001:db8::1"), block("2001:db8:0:1::1"));
        assert_eq!(block("::ffff:192.0.2.1"), block("192.0.2.1"));
        assert_ne!(block("192.0.2.1"), block("192.0.2.2"));
    }

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
