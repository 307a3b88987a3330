//! The engine that stands on a local disk: all current state in memory, every revision since the last compaction in
//! an append-only log.
//!
//! A write passes `writer` (evaluate, batch) → `log` (make durable) → `Shared::publish` → answer. `recovery` reads all of it
//! back at start. `archive` serves the past that memory no longer holds, `files` decides when it is compacted away.

mod archive;
mod checkpoint;
mod disk;
mod files;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod housekeeping;
mod log;
mod log_thread;
mod mark;
mod quota;
pub(crate) mod record;
mod recovery;
mod replay;
mod reserve;
mod volume;
mod watch;
mod writer;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use self::disk::{Disk, DiskFile};
use async_trait::async_trait;
use parking_lot::Mutex;

use self::archive::Archive;
use self::disk::{Directory, Lock};
use self::files::Limits;
use self::housekeeping::Housekeeping;
use self::log_thread::LogThread;
use self::mark::Mark;
use self::quota::Quota;
use self::recovery::recover;
use self::volume::{Name, Volume};
use self::watch::{Watch, blocking};
use self::writer::Writer;
use crate::codec::{Codec, Identity};
use crate::expiry::{self, now_ms};
use crate::history::HISTORY_BYTES;
use crate::shared::{Missing, Shared};
use crate::state::State;
use crate::{Entry, EventStream, Outcome, Revision, Snapshot, Store, StoreError, Transaction};

/// How much history is kept on disk.
#[derive(Clone, Debug)]
pub struct Options {
    /// History younger than this is kept, as far as `history_bytes` allows; what is older is refused soon after.
    pub history_age: Duration,
    /// The log grows to at most about this, or to the size of the state where that is larger.
    pub history_bytes: u64,
    /// A log file is closed at this length. Compaction removes whole files.
    pub segment_bytes: u64,
    /// Superseded values that are kept in memory for watches and pages; what is older is read back from disk.
    pub memory_bytes: usize,
    /// Writes that would make keys and values together larger than this are refused; 0 for no such bound.
    pub quota_bytes: u64,
    /// Opens a store whose log lacks acknowledged writes, if it is up to this revision that they were acknowledged.
    pub accept_lost_to: Option<Revision>,
}

/// The quota unless told otherwise, as etcd has it.
pub const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;

impl Default for Options {
    fn default() -> Self {
        Options {
            history_age: Duration::from_secs(5 * 60),
            history_bytes: 256 << 20,
            segment_bytes: 4 << 20,
            memory_bytes: HISTORY_BYTES,
            quota_bytes: DEFAULT_QUOTA_BYTES,
            accept_lost_to: None,
        }
    }
}

/// Opens the store in `directory`, creating it if needed. Only one process can have it open.
pub async fn open(directory: &Path, options: Options) -> Result<Arc<Embedded>, StoreError> {
    open_with_codec(directory, options, Arc::new(Identity)).await
}

/// As [`open`], with values that lie on the disk as `codec` has them.
pub async fn open_with_codec(
    directory: &Path,
    options: Options,
    codec: Arc<dyn Codec>,
) -> Result<Arc<Embedded>, StoreError> {
    let directory = directory.to_owned();
    let (disk, lock) = blocking(move || {
        let disk = Directory::open(&directory)?;
        Ok((disk, Lock::take(&directory)?))
    })
    .await?;
    start(Arc::new(disk), Some(lock), options, codec).await
}

/// Makes a store in `directory` that has the state of a backup; returns its revision. A directory that holds a store
/// already is left alone, and so is everything when the backup is damaged.
pub fn restore(backup: &mut dyn Read, directory: &Path) -> Result<Revision, StoreError> {
    let state = crate::backup::read(backup)?;
    let disk = Directory::open(directory)?;
    let _lock = Lock::take(directory)?;
    if disk.names()?.iter().any(|name| Name::parse(name).is_some()) {
        let why = format!("{} holds a store already; restore to a new place", directory.display());
        return Err(StoreError::Invalid(why));
    }
    let volume = Volume::open(Arc::new(disk), Arc::new(Identity))?;
    checkpoint::write(&volume, &state)?;
    Ok(state.revision)
}

/// Opens the store on a disk of the caller's; it is the caller's task that nobody else has it open.
pub async fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Arc<Embedded>, StoreError> {
    start(disk, None, options, Arc::new(Identity)).await
}

pub struct Embedded {
    shared: Arc<Shared>,
    writer: Arc<Writer>,
    archive: Arc<Archive>,
    roll_request: Arc<AtomicBool>,
    held: Arc<Mutex<Option<Held>>>,
}

/// What `close` gives back.
struct Held {
    log_thread: JoinHandle<()>,
    mark: Option<Arc<Mark>>,
    _lock: Option<Lock>,
}

async fn start(
    disk: Arc<dyn Disk>,
    lock: Option<Lock>,
    options: Options,
    codec: Arc<dyn Codec>,
) -> Result<Arc<Embedded>, StoreError> {
    let (limits, age) = (options.limits(), options.history_age);
    let quota = Quota {
        bytes: options.quota_bytes,
    };
    let (volume, recovered, mark) = blocking(move || {
        let volume = Volume::open(disk, codec)?;
        let recovered = recover(&volume, &options, now_ms())?;
        let mark = open_mark(&volume, recovered.state.revision);
        Ok((volume, recovered, mark))
    })
    .await?;

    let shared = Shared::new(recovered.state, recovered.history);
    let writer = Writer::new(shared.clone(), quota, volume.codec.clone());
    let archive = Arc::new(Archive::new(volume.clone(), recovered.files, shared.clone()));
    let roll_request = recovered.log.roll_request();
    let housekeeping = Arc::new(Housekeeping {
        archive: archive.clone(),
        writer: writer.clone(),
        mark: mark.clone(),
        limits,
        wake: tokio::sync::Notify::new(),
        is_full: AtomicBool::new(false),
        roll_request: roll_request.clone(),
    });
    let log_thread = {
        let (writer, mark, housekeeping) = (writer.clone(), mark.clone(), housekeeping.clone());
        thread::Builder::new().name("store-log".into()).spawn(move || {
            let log_thread = LogThread {
                writer: &writer,
                log: recovered.log,
                salt: volume.salt,
                mark: mark.as_deref(),
                has_failed: false,
            };
            log_thread.run(|event| housekeeping.hear(event));
        })?
    };
    let store = Arc::new(Embedded {
        shared: shared.clone(),
        writer,
        archive,
        roll_request,
        held: Arc::new(Mutex::new(Some(Held {
            log_thread,
            mark,
            _lock: lock,
        }))),
    });
    tokio::spawn(expiry::run(Arc::downgrade(&store), shared));
    tokio::spawn(housekeeping.run());
    tokio::spawn(housekeeping::forget_when_old(store.archive.clone(), age));
    Ok(store)
}

/// Without a mark the store is no less durable; only a log that somebody truncates goes unnoticed.
fn open_mark(volume: &Volume, revision: Revision) -> Option<Arc<Mark>> {
    match Mark::open(volume, revision) {
        Ok(mark) => Some(Arc::new(mark)),
        Err(error) => {
            tracing::warn!(%error, "Failed to create the record of acknowledged revisions; retrying at the next start");
            None
        }
    }
}

impl Options {
    fn limits(&self) -> Limits {
        Limits {
            age_ms: self.history_age.as_millis() as u64,
            least_bytes: 2 * self.segment_bytes,
            most_bytes: self.history_bytes,
        }
    }
}

impl Embedded {
    /// Writes all values anew as the codec has them now. History before goes, and with it what the files had: the last
    /// one as soon as something is written.
    pub async fn rewrite(&self) -> Result<(), StoreError> {
        self.shared.check_open()?;
        // Writes that were encoded before must be published: whatever comes later is encoded as from now on.
        self.writer.settle().await;
        let archive = self.archive.clone();
        blocking(move || archive.rewrite()).await?;
        self.roll_request.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn read_back(&self, revision: Revision) -> Result<Arc<State>, StoreError> {
        let turn = self.archive.turn().await;
        if let Some(pinned) = self.shared.pinned(revision) {
            return Ok(pinned);
        }
        let archive = self.archive.clone();
        let state = blocking(move || archive.state_at(revision)).await?;
        drop(turn);
        Ok(self.shared.pin(Arc::new(state)))
    }
}

/// Ends the log thread after what was promised is durable, then lets go of the directory.
fn release(held: &Mutex<Option<Held>>, writer: &Writer, shared: &Shared) {
    writer.close();
    if let Some(held) = held.lock().take() {
        // A panic in there has been reported where it happened.
        let _ = held.log_thread.join();
        if let Some(Err(error)) = held.mark.map(|mark| mark.sync()) {
            tracing::warn!(%error, "Failed to sync the record of acknowledged revisions");
        }
    }
    shared.close();
}

impl Drop for Embedded {
    fn drop(&mut self) {
        release(&self.held, &self.writer, &self.shared);
    }
}

#[async_trait]
impl Store for Embedded {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.shared.state()
    }

    async fn latest(&self) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.shared.check_open()?;
        Ok(self.shared.state())
    }

    async fn snapshot_at(&self, revision: Revision) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.shared.check_open()?;
        self.archive.check_floor(revision)?;
        match self.shared.state_at(revision) {
            Ok(state) => Ok(state),
            Err(Missing::Older { .. }) => Ok(self.read_back(revision).await?),
            Err(missing @ Missing::Future { .. }) => Err(missing.into_error(revision)),
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        self.shared.check_open()?;
        self.writer.commit(transaction).await
    }

    async fn watch(&self, after: Revision) -> Result<Box<dyn EventStream>, StoreError> {
        self.shared.check_open()?;
        Ok(Box::new(Watch::new(self.archive.clone(), after)?))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.shared.check_open()?;
        let current = self.shared.state().revision;
        if revision > current {
            return Err(StoreError::Future {
                requested: revision,
                current,
            });
        }
        let archive = self.archive.clone();
        blocking(move || archive.compact_to(revision)).await
    }

    async fn disk_bytes(&self) -> Option<u64> {
        let volume = self.archive.volume.clone();
        blocking(move || Ok(volume.bytes()?)).await.ok()
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.shared.check_open()?;
        self.writer.check()
    }

    fn prolong(&self, entries: &[Arc<Entry>], ttl: Duration) -> bool {
        self.shared.expiries.prolong(entries, ttl);
        true
    }

    async fn close(&self) {
        let (held, writer, shared) = (self.held.clone(), self.writer.clone(), self.shared.clone());
        // It fails only while the runtime itself is going down.
        let _ = tokio::task::spawn_blocking(move || release(&held, &writer, &shared)).await;
    }
}
