//! The engine that stands on an etcd cluster, laid out as upstream's, alone or beside other API servers.
//!
//! `feed` keeps the same in-memory state as the other engines by one watch of etcd; reads never leave this process unless they
//! have to be the latest. Writes are etcd transactions, acknowledged once the feed has seen them. Revisions are etcd's.

mod channel;
mod client;
mod feed;
mod head;
mod lease;
mod members;
mod watch;
mod wire;

#[allow(clippy::all, missing_docs)]
pub(crate) mod proto {
    tonic::include_proto!("etcdserverpb");
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

pub(crate) use self::channel::Connection;
pub use self::channel::Tls;
pub use crate::codec::{Codec, CodecError, Identity};

use self::client::{Client, LoadError};
use self::feed::{Feed, Progress};
use self::head::Head;
use self::lease::Leases;
use self::members::Members;
use self::watch::Watch;
use self::wire::Scope;
use crate::history::{HISTORY_BYTES, History};
use crate::shared::{Missing, Shared};
use crate::state::State;
use crate::{EventStream, Outcome, Revision, Snapshot, Store, StoreError, Transaction, Write};

/// How long `connect` waits for etcd to come up.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);
const CONNECT_PAUSE: Duration = Duration::from_millis(200);

/// How long a write or a consistent read waits for the feed to catch up.
const FEED_PATIENCE: Duration = Duration::from_secs(10);

/// Events that are on their way arrive within this; only then is progress asked for.
const EVENT_PATIENCE: Duration = Duration::from_millis(2);
const LONGEST_EVENT_PATIENCE: Duration = Duration::from_millis(500);

/// How often a transaction is tried when its lease has vanished.
const LEASE_ATTEMPTS: usize = 2;

pub struct EtcdOptions {
    /// URLs such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// All keys lie below it; by default `/registry`.
    pub prefix: String,
    /// Needed for https endpoints.
    pub tls: Option<Tls>,
    pub codec: Arc<dyn Codec>,
    /// etcd is told to forget what is older than this; `None` leaves that to others.
    pub compaction_interval: Option<Duration>,
}

impl EtcdOptions {
    pub fn new(endpoints: Vec<String>, codec: Arc<dyn Codec>) -> Self {
        EtcdOptions {
            endpoints,
            prefix: "/registry".into(),
            tls: None,
            codec,
            compaction_interval: Some(Duration::from_secs(5 * 60)),
        }
    }
}

/// Connects, reads everything below the prefix and begins to follow it.
pub async fn connect(options: EtcdOptions) -> Result<Arc<Etcd>, StoreError> {
    let members = Members::new(channel::channels(&options.endpoints, options.tls)?);
    let client = Client::new(members, Scope::new(&options.prefix), options.codec);
    let state = first_load(&client).await?;
    let history = History::new(state.revision, HISTORY_BYTES);
    let shared = Shared::new(state, history);
    let progress = Arc::new(Progress::default());
    let feed = Feed {
        client: client.clone(),
        shared: shared.clone(),
        progress: progress.clone(),
    };
    tokio::spawn(feed.run());
    if let Some(interval) = options.compaction_interval {
        tokio::spawn(compact_regularly(client.clone(), shared.clone(), interval));
    }
    Ok(Arc::new(Etcd {
        shared,
        client,
        progress,
        leases: Leases::default(),
        head: Head::default(),
        is_over_quota: AtomicBool::new(false),
    }))
}

pub struct Etcd {
    shared: Arc<Shared>,
    client: Client,
    progress: Arc<Progress>,
    leases: Leases,
    head: Head,
    /// The last write that failed, failed because etcd is full.
    is_over_quota: AtomicBool,
}

async fn first_load(client: &Client) -> Result<State, StoreError> {
    let deadline = Instant::now() + CONNECT_PATIENCE;
    loop {
        match client.load(0, &State::default()).await {
            Ok(state) => return Ok(state),
            Err(LoadError::Status(status)) if Instant::now() < deadline => {
                tracing::info!(error = %wire::read_error(&status), "Waiting for etcd to respond");
                sleep(CONNECT_PAUSE).await;
            }
            Err(error) => return Err(error.into_error()),
        }
    }
}

/// Every server forgets what it knew one interval ago. Several of them do no harm: compacting again is nothing.
async fn compact_regularly(client: Client, shared: Arc<Shared>, interval: Duration) {
    let mut before: Option<Revision> = None;
    loop {
        if let Some(revision) = before.replace(shared.state().revision)
            && let Err(status) = client.compact(revision).await
            && !wire::is_compacted(&status)
        {
            tracing::warn!(error = %wire::read_error(&status), revision, "Failed to compact etcd; retrying at the next interval");
        }
        tokio::select! {
            () = sleep(interval) => (),
            () = shared.ended() => return,
        }
    }
}

impl Etcd {
    async fn head(&self) -> Result<Revision, StoreError> {
        self.head.revision(async || self.client.head().await).await
    }

    /// Waits until the state includes everything up to `revision`.
    async fn catch_up(&self, revision: Revision) -> Result<(), StoreError> {
        let deadline = Instant::now() + FEED_PATIENCE;
        let mut patience = EVENT_PATIENCE;
        while !self.shared.reaches(revision, patience).await? {
            if Instant::now() > deadline {
                return Err(StoreError::Unavailable(format!(
                    "the watch of etcd has not reached revision {revision}"
                )));
            }
            if self.progress.reliable.load(Ordering::Relaxed) {
                self.progress.wanted.notify_one();
            } else {
                self.look_for_changes(revision).await?;
            }
            patience = (patience * 2).min(LONGEST_EVENT_PATIENCE);
        }
        Ok(())
    }

    /// Revisions also move with keys that are not ours. If nothing of ours is newer than what we have, and nothing is
    /// missing, then we have everything.
    async fn look_for_changes(&self, revision: Revision) -> Result<(), StoreError> {
        let state = self.shared.state();
        let found = self
            .client
            .fingerprint(revision)
            .await
            .map_err(|status| wire::read_error(&status))?;
        if found.newest <= state.revision && found.keys == state.entries.len() {
            self.shared.advance(state.revision, revision);
        }
        Ok(())
    }

    /// Makes what another server has written known here, before its revision is called the future.
    async fn ensure_known(&self, revision: Revision) -> Result<(), StoreError> {
        if revision > self.shared.state().revision {
            self.catch_up(self.head().await?).await?;
        }
        let current = self.shared.state().revision;
        if revision > current {
            Err(StoreError::Future {
                requested: revision,
                current,
            })
        } else {
            Ok(())
        }
    }

    async fn read_back(&self, revision: Revision, floor: Revision) -> Result<Arc<State>, StoreError> {
        if let Some(pinned) = self.shared.pinned(revision) {
            return Ok(pinned);
        }
        match self.client.load(revision, &self.shared.state()).await {
            Ok(state) => Ok(self.shared.pin(Arc::new(state))),
            Err(LoadError::Status(status)) if wire::is_compacted(&status) => Err(StoreError::Compacted {
                requested: revision,
                oldest: floor,
            }),
            Err(error) => Err(error.into_error()),
        }
    }

    async fn transact(&self, transaction: &Transaction) -> Result<(Outcome, bool), StoreError> {
        let mut attempt = 1;
        loop {
            let lease = self.leases.lease(&self.client, transaction).await?;
            let request = wire::txn(transaction, lease, &*self.client.codec)?;
            match self.client.txn(request).await {
                Ok(response) => return wire::outcome(transaction, response, &*self.client.codec),
                Err(status) if wire::is_lost_lease(&status) && attempt < LEASE_ATTEMPTS => self.leases.forget().await,
                Err(status) => return Err(wire::write_error(&status)),
            }
            attempt += 1;
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.shared.close();
    }
}

#[async_trait]
impl Store for Etcd {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.shared.state()
    }

    async fn latest(&self) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.shared.check_open()?;
        self.catch_up(self.head().await?).await?;
        Ok(self.shared.state())
    }

    async fn snapshot_at(&self, revision: Revision) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.shared.check_open()?;
        self.ensure_known(revision).await?;
        match self.shared.state_at(revision) {
            Ok(state) => Ok(state),
            Err(Missing::Older { floor }) => Ok(self.read_back(revision, floor).await?),
            Err(missing @ Missing::Future { .. }) => Err(missing.into_error(revision)),
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        self.shared.check_open()?;
        transaction.check()?;
        self.client.scope.check(&transaction)?;
        let transacted = self.transact(&transaction).await;
        let puts = transaction
            .writes
            .iter()
            .any(|write| matches!(write, Write::Put { .. }));
        match &transacted {
            Err(StoreError::QuotaExceeded) => self.is_over_quota.store(true, Ordering::Relaxed),
            Ok((Outcome::Committed { .. }, _)) if puts => self.is_over_quota.store(false, Ordering::Relaxed),
            _ => (),
        }
        let (outcome, changed) = transacted?;
        if let Outcome::Committed { revision } = outcome
            && changed
            && !self.shared.reaches(revision, FEED_PATIENCE).await?
        {
            return Err(StoreError::Unknown(format!(
                "revision {revision} is written but the watch has not shown it"
            )));
        }
        Ok(outcome)
    }

    async fn watch(&self, after: Revision) -> Result<Box<dyn EventStream>, StoreError> {
        self.shared.check_open()?;
        self.ensure_known(after).await?;
        Ok(Box::new(
            Watch::open(self.shared.clone(), self.client.clone(), after).await?,
        ))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.shared.check_open()?;
        self.ensure_known(revision).await?;
        match self.client.compact(revision).await {
            Err(status) if !wire::is_compacted(&status) => Err(wire::read_error(&status)),
            _ => {
                self.shared.forget(revision);
                Ok(())
            }
        }
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.shared.check_open()?;
        match self.is_over_quota.load(Ordering::Relaxed) {
            true => Err(StoreError::QuotaExceeded),
            false => Ok(()),
        }
    }

    async fn disk_bytes(&self) -> Option<u64> {
        self.client.disk_bytes().await.ok()
    }

    async fn close(&self) {
        self.shared.close();
    }
}
