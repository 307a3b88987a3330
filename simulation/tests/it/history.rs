//! The store as the server has it, with everything that is committed written down and looked at.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use api::Value;
use async_trait::async_trait;
use parking_lot::Mutex;
use store::memory::Memory;
use store::{Entry, EventStream, Outcome, Revision, Snapshot, Store, StoreError, Transaction, Write};
use tokio::time::Instant;

use crate::invariants::Invariants;

/// All objects but events and leases, by their keys in the store.
pub type Objects = BTreeMap<Arc<str>, Value>;

pub struct History {
    begun: Instant,
    pub objects: Objects,
    pub invariants: Invariants,
    /// One line per write: when, what and the beginning of it.
    pub commits: Vec<String>,
    keeps_commits: bool,
    hasher: DefaultHasher,
}

/// What the store, the links and the end of a run look at.
pub struct Shared(Mutex<History>);

impl Shared {
    pub fn new(keeps_commits: bool) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(History {
            begun: Instant::now(),
            objects: Objects::new(),
            invariants: Invariants::default(),
            commits: Vec::new(),
            keeps_commits,
            hasher: DefaultHasher::new(),
        })))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut self.0.lock())
    }

    /// An object was created, but whoever asked for it does not know: they may well create another.
    pub fn lost_creation(&self, path: &str) {
        let namespace = path
            .split("/namespaces/")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        self.with(|history| history.invariants.lost_creation(namespace.unwrap_or_default()));
    }

    pub fn hash(&self) -> u64 {
        self.with(|history| history.hasher.finish())
    }
}

impl History {
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn note(&mut self, write: &Write) {
        let at = self.elapsed();
        let (key, value): (&Arc<str>, &[u8]) = match write {
            Write::Put { key, value, .. } => (key, value),
            Write::Delete { key } => (key, b""),
        };
        self.hasher.write_u128(at.as_millis());
        self.hasher.write(key.as_bytes());
        self.hasher.write(value);
        if self.keeps_commits {
            let text = String::from_utf8_lossy(value);
            self.commits.push(format!("{:9.3} {key} {text}", at.as_secs_f64()));
        }
        if key.starts_with("/registry/events/") || key.starts_with("/registry/leases/") {
            return;
        }
        let new: Option<Value> = match write {
            Write::Put { value, .. } => serde_json::from_slice(value).ok(),
            Write::Delete { .. } => None,
        };
        let old = match new {
            Some(new) => self.objects.insert(key.clone(), new),
            None => self.objects.remove(key),
        };
        let new = self.objects.get(key);
        self.invariants.check(&self.objects, old.as_ref(), new, at);
    }
}

/// A store that tells the history of what is committed to it.
pub struct Recorded {
    pub store: Arc<Memory>,
    pub history: Arc<Shared>,
}

#[async_trait]
impl Store for Recorded {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.store.snapshot()
    }

    async fn latest(&self) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.store.latest().await
    }

    async fn snapshot_at(&self, revision: Revision) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.store.snapshot_at(revision).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        let writes = transaction.writes.clone();
        let outcome = self.store.commit(transaction).await?;
        if let Outcome::Committed { .. } = outcome {
            self.history
                .with(|history| writes.iter().for_each(|write| history.note(write)));
        }
        Ok(outcome)
    }

    async fn watch(&self, after: Revision) -> Result<Box<dyn EventStream>, StoreError> {
        self.store.watch(after).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }

    fn prolong(&self, entries: &[Arc<Entry>], ttl: Duration) -> bool {
        self.store.prolong(entries, ttl)
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
