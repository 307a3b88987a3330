//! Events on their way to somebody else, many at a time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use crate::auditor::BackendFigures;
use crate::{Event, TruncateOptions};

/// How events are put together, with upstream's defaults for webhooks.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    /// Events that may wait; what comes beyond is lost and counted.
    pub buffer_size: usize,
    pub max_size: usize,
    pub max_wait: Duration,
    /// Batches per second, if they are throttled.
    pub throttle_qps: Option<f64>,
    pub throttle_burst: u32,
    /// How long to wait before a batch that failed is sent again.
    pub initial_backoff: Duration,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions {
            buffer_size: 10_000,
            max_size: 400,
            max_wait: Duration::from_secs(30),
            throttle_qps: Some(10.0),
            throttle_burst: 15,
            initial_backoff: Duration::from_secs(10),
        }
    }
}

/// How often a batch is sent before it is given up.
const ATTEMPTS: u32 = 4;

/// Where batches go.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Takes an `EventList`.
    async fn send(&self, list: Bytes) -> Result<(), String>;
}

/// Sends what comes in until nothing more can come.
pub(crate) async fn run(
    mut events: mpsc::Receiver<Arc<Event>>,
    sink: Arc<dyn Sink>,
    options: BatchOptions,
    truncate: TruncateOptions,
    figures: Arc<BackendFigures>,
) {
    let mut throttle = Throttle::new(&options);
    while let Some(first) = events.recv().await {
        let mut batch = vec![first];
        let until = Instant::now() + options.max_wait;
        while batch.len() < options.max_size {
            match timeout_at(until, events.recv()).await {
                Ok(Some(event)) => batch.push(event),
                Ok(None) | Err(_) => break,
            }
        }
        for list in lists(&batch, &truncate, &figures) {
            throttle.wait().await;
            send(&*sink, list, &options, &figures).await;
        }
    }
}

async fn send(sink: &dyn Sink, (list, count): (Bytes, u64), options: &BatchOptions, figures: &BackendFigures) {
    let mut pause = options.initial_backoff;
    for attempt in 1..=ATTEMPTS {
        match sink.send(list.clone()).await {
            Ok(()) => return,
            Err(error) if attempt == ATTEMPTS => {
                warn!(error, events = count, "Failed to send audit events; they are lost");
                figures.lost(count);
            }
            Err(error) => {
                warn!(error, attempt, "Failed to send audit events; retrying");
                sleep(pause).await;
                pause = pause * 3 / 2;
            }
        }
    }
}

/// The batch as one `EventList`, or several where one would be too long; each with how many events it has.
fn lists(batch: &[Arc<Event>], truncate: &TruncateOptions, figures: &BackendFigures) -> Vec<(Bytes, u64)> {
    const HEAD: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
    let mut lists = Vec::new();
    let mut list: Vec<u8> = Vec::new();
    let mut count = 0;
    let mut finish = |list: &mut Vec<u8>, count: &mut u64| {
        if !list.is_empty() {
            list.extend_from_slice(b"]}");
            lists.push((Bytes::from(std::mem::take(list)), std::mem::take(count)));
        }
    };
    for event in batch {
        let Some(encoded) = truncate.encode(event) else {
            figures.lost(1);
            continue;
        };
        if truncate.enabled && list.len() + encoded.len() > truncate.max_batch_bytes {
            finish(&mut list, &mut count);
        }
        list.extend_from_slice(if list.is_empty() { HEAD } else { b"," });
        list.extend_from_slice(&encoded);
        count += 1;
    }
    finish(&mut list, &mut count);
    lists
}

/// A bucket of permits that fills at a steady rate.
struct Throttle {
    qps: Option<f64>,
    burst: f64,
    permits: f64,
    filled: Instant,
}

impl Throttle {
    fn new(options: &BatchOptions) -> Throttle {
        let burst = f64::from(options.throttle_burst.max(1));
        Throttle {
            qps: options.throttle_qps.filter(|qps| *qps > 0.0),
            burst,
            permits: burst,
            filled: Instant::now(),
        }
    }

    async fn wait(&mut self) {
        let Some(qps) = self.qps else { return };
        let now = Instant::now();
        self.permits = (self.permits + (now - self.filled).as_secs_f64() * qps).min(self.burst);
        self.filled = now;
        if self.permits < 1.0 {
            sleep(Duration::from_secs_f64((1.0 - self.permits) / qps)).await;
            self.permits = 1.0;
            self.filled = Instant::now();
        }
        self.permits -= 1.0;
    }
}
