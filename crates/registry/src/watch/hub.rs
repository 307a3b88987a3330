//! The one reader of the store that feeds all rings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::IndexedField;
use parking_lot::{Mutex, RwLock};
use store::{Event, EventBatch, Revision, Store, StoreError};
use tokio::time::Instant;
use tracing::{error, warn};

use super::Ring;

const RETRY_PAUSE: Duration = Duration::from_millis(200);
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// Routes events to the ring of their resource by the longest matching key prefix.
pub struct Hub {
    store: Arc<dyn Store>,
    rings: RwLock<BTreeMap<String, Arc<Ring>>>,
    start: Revision,
    /// Everything up to this revision has been delivered. Changes only while `rings` is locked for reading.
    delivered: AtomicU64,
    /// When the rings last forgot what was old.
    trimmed: Mutex<Instant>,
}

impl Hub {
    pub fn new(store: Arc<dyn Store>) -> Hub {
        let start = store.snapshot().revision();
        Hub {
            store,
            rings: RwLock::new(BTreeMap::new()),
            start,
            delivered: AtomicU64::new(start),
            trimmed: Mutex::new(Instant::now()),
        }
    }

    /// The ring for keys below `prefix`, made on first use.
    pub fn ring(&self, prefix: &str, field: Option<&'static IndexedField>) -> Arc<Ring> {
        let mut rings = self.rings.write();
        // A ring made later knows nothing of what was delivered before it.
        let start = self.delivered.load(Ordering::Relaxed);
        rings
            .entry(prefix.to_owned())
            .or_insert_with(|| {
                let ring = Ring::new(start, field);
                ring.count_objects(self.store.snapshot().count(prefix));
                Arc::new(ring)
            })
            .clone()
    }

    /// Reads the store for ever; when its history is lost all cursors fall behind and clients list again.
    pub async fn run(&self) {
        let store = &self.store;
        let mut at = self.start;
        loop {
            match store.watch(at).await {
                Ok(mut events) => loop {
                    match events.next().await {
                        Ok(batch) => {
                            at = batch.complete_to;
                            self.deliver(batch);
                        }
                        Err(error) => {
                            warn!(%error, "The watch on the store ended; opening a new one");
                            break;
                        }
                    }
                },
                Err(StoreError::Compacted { .. }) => {
                    at = store.snapshot().revision();
                    error!(
                        revision = at,
                        "The store compacted events before they were read; watches end and clients list again"
                    );
                    let rings = self.rings.read();
                    rings.values().for_each(|ring| ring.reset(at));
                    self.delivered.store(at, Ordering::Relaxed);
                }
                Err(error) => warn!(%error, "Failed to watch the store; retrying"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    fn deliver(&self, batch: EventBatch) {
        let rings = self.rings.read();
        let mut events = batch.events.into_iter().peekable();
        while let Some(event) = events.next() {
            let Some(ring) = ring_of(&rings, &event) else { continue };
            let mut run = vec![event];
            while let Some(next) =
                events.next_if(|next| ring_of(&rings, next).is_some_and(|other| Arc::ptr_eq(other, ring)))
            {
                run.push(next);
            }
            ring.append(run.into_iter());
        }
        for ring in rings.values() {
            ring.advance(batch.complete_to);
        }
        self.delivered.store(batch.complete_to, Ordering::Relaxed);
        self.trim(&rings);
    }

    /// Now and then, lets every ring forget what is old, also those without new events.
    fn trim(&self, rings: &BTreeMap<String, Arc<Ring>>) {
        let now = Instant::now();
        let mut trimmed = self.trimmed.lock();
        if now.duration_since(*trimmed) >= TRIM_INTERVAL {
            *trimmed = now;
            rings.values().for_each(|ring| ring.trim(now));
        }
    }
}

fn ring_of<'a>(rings: &'a BTreeMap<String, Arc<Ring>>, event: &Event) -> Option<&'a Arc<Ring>> {
    rings
        .range::<str, _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(&*event.key)))
        .next_back()
        .filter(|(prefix, _)| event.key.starts_with(prefix.as_str()))
        .map(|(_, ring)| ring)
}
