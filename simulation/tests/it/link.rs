//! The way between a component and the API server, on which everything can go wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Body, Transport, TransportError, body_from_bytes};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::history::Shared;

/// A request that is held longer than this fails without effect: a leader that has lost its lease must not be able to
/// write through a slow network (it has five seconds until the next one leads).
const LONGEST_DELAY: Duration = Duration::from_secs(3);

/// How often things go wrong, as shares of all requests (or of the frames of watches).
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    delayed: f64,
    refused: f64,
    lost_before: f64,
    lost_after: f64,
    repeated: f64,
    watch_ended: f64,
}

impl Rates {
    /// Seeds differ in what goes wrong, not only in when.
    pub fn random() -> Rates {
        let rate = |most: f64| {
            if clock::below(3) == 0 {
                0.0
            } else {
                clock::fraction() * most
            }
        };
        Rates {
            delayed: rate(0.6),
            refused: rate(0.06),
            lost_before: rate(0.06),
            lost_after: rate(0.06),
            repeated: rate(0.06),
            watch_ended: rate(0.05),
        }
    }
}

/// What all connections of one component share.
pub struct Link {
    rates: Rates,
    is_faulty: AtomicBool,
    cut_until: Mutex<Option<Instant>>,
    /// Ends all watches of the component.
    watches_end: Notify,
    history: Arc<Shared>,
}

impl Link {
    pub fn new(rates: Option<Rates>, history: Arc<Shared>) -> Arc<Link> {
        let none = Rates {
            delayed: 0.0,
            refused: 0.0,
            lost_before: 0.0,
            lost_after: 0.0,
            repeated: 0.0,
            watch_ended: 0.0,
        };
        Arc::new(Link {
            rates: rates.unwrap_or(none),
            is_faulty: AtomicBool::new(rates.is_some()),
            cut_until: Mutex::default(),
            watches_end: Notify::new(),
            history,
        })
    }

    pub fn heal(&self) {
        self.is_faulty.store(false, Ordering::Relaxed);
        *self.cut_until.lock() = None;
    }

    /// Nothing passes for this long.
    pub fn cut(&self, duration: Duration) {
        *self.cut_until.lock() = Some(Instant::now() + duration);
    }

    pub fn end_watches(&self) {
        self.watches_end.notify_waiters();
    }

    fn is_cut(&self) -> bool {
        self.cut_until.lock().is_some_and(|until| until > Instant::now())
    }

    fn happens(&self, rate: f64) -> bool {
        self.is_faulty.load(Ordering::Relaxed) && clock::fraction() < rate
    }

    fn delay(&self) -> Option<Duration> {
        let longest = if clock::below(10) == 0 {
            LONGEST_DELAY
        } else {
            Duration::from_millis(150)
        };
        self.happens(self.rates.delayed)
            .then(|| longest.mul_f64(clock::fraction()))
    }
}

/// One identity's connection over a link.
pub struct Connection {
    pub link: Arc<Link>,
    pub server: Arc<dyn Transport>,
}

fn lost(what: &str) -> TransportError {
    TransportError::Other(format!("simulated: {what}").into())
}

/// An answer of a server that is overloaded or whose store moved on.
fn refusal() -> Response<Body> {
    let reason = match clock::below(3) {
        0 => api::Reason::Conflict,
        1 => api::Reason::InternalError,
        _ => api::Reason::TooManyRequests,
    };
    let error = api::Error::new(reason, "simulated");
    let mut answer = Response::new(body_from_bytes(Bytes::from(error.to_status().to_string())));
    *answer.status_mut() = StatusCode::from_u16(error.code()).expect("a status code");
    answer
}

/// Whether the request creates an object whose name the server makes up: every repetition is another object.
fn names_itself(request: &Request<Bytes>) -> bool {
    let has = |what: &str| {
        request
            .body()
            .windows(what.len())
            .any(|window| window == what.as_bytes())
    };
    request.method() == Method::POST && has("\"generateName\"")
}

#[async_trait]
impl Transport for Connection {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let link = &self.link;
        let is_read = request.method() == Method::GET;
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if let Some(delay) = link.delay() {
            tokio::time::sleep(delay).await;
        }
        if link.is_cut() {
            tokio::time::sleep(LONGEST_DELAY.mul_f64(clock::fraction())).await;
            return Err(lost("the network is cut"));
        }
        if link.happens(link.rates.lost_before) {
            return Err(lost("the request is lost"));
        }
        if !is_read && link.happens(link.rates.refused) {
            return Ok(refusal());
        }
        let creates = names_itself(&request);
        if !is_watch && !creates && link.happens(link.rates.repeated) {
            drop(self.server.send(request.clone()).await?);
        }
        let path = request.uri().path().to_owned();
        let answer = self.server.send(request).await?;
        if is_watch {
            return Ok(answer.map(|body| watched(body, link.clone())));
        }
        let delay = link.delay();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        if link.happens(link.rates.lost_after) || link.is_cut() {
            if creates && answer.status().is_success() {
                link.history.lost_creation(&path);
            }
            return Err(lost("the answer is lost"));
        }
        Ok(answer)
    }
}

/// The frames of a watch: in order, but late, and not for long.
fn watched(body: Body, link: Arc<Link>) -> Body {
    let frames = futures_util::stream::unfold((body, link), |(mut body, link)| async move {
        let frame = tokio::select! {
            biased;
            () = link.watches_end.notified() => return None,
            frame = body.frame() => frame?,
        };
        if let Some(delay) = link.delay() {
            tokio::time::sleep(delay).await;
        }
        if link.is_cut() {
            let until = link.cut_until.lock().unwrap_or_else(Instant::now);
            tokio::time::sleep_until(until).await;
        }
        if link.happens(link.rates.watch_ended) {
            // Half of the ends are in order, half are broken connections.
            return match clock::below(2) {
                0 => None,
                _ => Some((Err(lost("the watch is broken")), (body_from_bytes(Bytes::new()), link))),
            };
        }
        Some((frame, (body, link)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Counts for names that must differ in one run.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
