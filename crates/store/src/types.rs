//! The contract between the store's engines and the API server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// A point in the store's history. The first write is revision 1; it never repeats and never goes back.
pub type Revision = u64;

/// One key as it stood at `mod_revision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Arc<str>,
    pub value: Bytes,
    pub create_revision: Revision,
    pub mod_revision: Revision,
    /// When the key expires, in milliseconds of Unix time; 0 when it never does or when the engine leaves it to its peer.
    pub(crate) expires_at_ms: u64,
}

/// A condition that must hold for a transaction's writes to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    Absent { key: Arc<str> },
    Unchanged { key: Arc<str>, mod_revision: Revision },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// `ttl`: the key is deleted, as if by a client, that long after the write. The next write of the key replaces it.
    Put {
        key: Arc<str>,
        /// Kept in memory as it is: it should not be a small slice of a large buffer.
        value: Bytes,
        ttl: Option<Duration>,
    },
    Delete {
        key: Arc<str>,
    },
}

/// All writes happen at one revision, or none does. No key may be written twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub compares: Vec<Compare>,
    pub writes: Vec<Write>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Writes that change nothing (none at all, or only deletes of absent keys) make no new revision; `revision` is then
    /// the current one.
    Committed { revision: Revision },
    /// Some compare did not hold; `current` has the state of every compared key, in the order of the compares.
    Conflict { current: Vec<Option<Arc<Entry>>> },
}

/// A change of one key. Events of one transaction share a revision and follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub revision: Revision,
    pub key: Arc<str>,
    /// The state after the change; `None` when the key was deleted.
    pub current: Option<Arc<Entry>>,
    /// The state before the change; `None` when the key was created.
    pub previous: Option<Arc<Entry>>,
}

/// A consistent view of the whole key space at one revision. Cheap to make and to hold; never blocks a writer.
pub trait Snapshot: Send + Sync {
    fn revision(&self) -> Revision;
    fn get(&self, key: &str) -> Option<Arc<Entry>>;
    /// Entries whose key starts with `prefix` and is at or after `from`, in key order.
    fn range<'a>(&'a self, prefix: &'a str, from: &'a str) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + Send + 'a>;
    /// How many keys start with `prefix`.
    fn count(&self, prefix: &str) -> usize {
        self.range(prefix, prefix).count()
    }
}

/// An ordered stream of all events after a revision.
#[async_trait]
pub trait EventStream: Send {
    /// The next events, never splitting a revision across two calls. The batch carries the revision up to which the
    /// stream is complete; an etcd shared with others also moves without events of ours, so a batch may be empty and
    /// only say so. `Err(StoreError::Compacted)` when the reader fell behind compaction. Dropping the future loses
    /// nothing.
    async fn next(&mut self) -> Result<EventBatch, StoreError>;
}

#[derive(Clone, Debug, Default)]
pub struct EventBatch {
    pub events: Vec<Event>,
    /// Every event up to and including this revision has been delivered.
    pub complete_to: Revision,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("revision {requested} has been compacted; the oldest available is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    #[error("revision {requested} is in the future; the store is at {current}")]
    Future { requested: Revision, current: Revision },
    /// Nothing was written and the write may be repeated.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// It is not known whether the write happened.
    #[error("outcome of the write is unknown: {0}")]
    Unknown(String),
    /// The store accepts no writes for now; reads go on. Nothing was written.
    #[error("store is read-only: {0}")]
    ReadOnly(String),
    /// The write would make the store larger than its quota; deletes go on. In the words that clients of etcd know.
    #[error("etcdserver: mvcc: database space exceeded")]
    QuotaExceeded,
    /// The transaction can never be carried out as it is, for example because it writes a key twice.
    #[error("invalid transaction: {0}")]
    Invalid(String),
    #[error("store is damaged: {0}")]
    Corrupt(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What every engine does. Acknowledged writes are durable and visible to every later `snapshot` of this process.
#[async_trait]
pub trait Store: Send + Sync {
    /// The newest state this process knows of. Never waits, and includes everything this process had acknowledged.
    fn snapshot(&self) -> Arc<dyn Snapshot>;

    /// A state at least as new as every write that any process had acknowledged before the call (etcd: a quorum read).
    async fn latest(&self) -> Result<Arc<dyn Snapshot>, StoreError>;

    /// The state as it stood at `revision`, for pages that pin one revision.
    async fn snapshot_at(&self, revision: Revision) -> Result<Arc<dyn Snapshot>, StoreError>;

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, StoreError>;

    /// All events after `revision`.
    async fn watch(&self, after: Revision) -> Result<Box<dyn EventStream>, StoreError>;

    /// Forgets history before `revision`; the current state is untouched.
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;

    /// Lets entries with a time to live have it anew from now on, without a new revision. It is not written down: after a
    /// restart it is the time of their writes that counts. `false` when the engine cannot do this.
    fn prolong(&self, entries: &[Arc<Entry>], ttl: Duration) -> bool {
        let _ = (entries, ttl);
        false
    }

    /// How much room the engine takes on its disk, if it has one and can tell.
    async fn disk_bytes(&self) -> Option<u64> {
        None
    }

    /// Why writes would be refused at present, from what earlier ones met. Asks neither a disk nor a peer.
    fn check_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Flushes and releases what the engine holds. Later calls fail.
    async fn close(&self);
}
