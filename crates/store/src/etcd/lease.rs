//! Leases for keys with a time to live. Keys that are to live equally long share one, as leases are dear in etcd.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::client::Client;
use super::wire;
use crate::{StoreError, Transaction, Write};

/// etcd deletes all keys of a lease in one transaction, so there should not be too many.
const KEYS_PER_LEASE: usize = 1000;

/// A key may live this much longer than asked for, so that the next ones can share its lease.
const LONGEST_EXTENSION: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Leases {
    /// By time to live in seconds. Those that are past sharing go when another is granted.
    shared: Mutex<HashMap<u64, Lease>>,
}

struct Lease {
    id: i64,
    keys: usize,
    share_until: Instant,
}

impl Leases {
    /// The lease for a transaction's keys; 0 when none of them expires.
    pub async fn lease(&self, client: &Client, transaction: &Transaction) -> Result<i64, StoreError> {
        let Some(ttl) = longest_ttl(transaction) else {
            return Ok(0);
        };
        let seconds = ttl.as_millis().div_ceil(1000).max(1) as u64;
        let mut shared = self.shared.lock().await;
        let now = Instant::now();
        if let Some(lease) = shared.get_mut(&seconds)
            && lease.keys < KEYS_PER_LEASE
            && now < lease.share_until
        {
            lease.keys += transaction.writes.len();
            return Ok(lease.id);
        }
        let extension = extension(seconds);
        let granted = client.grant(seconds + extension.as_secs()).await;
        let id = granted.map_err(|status| wire::read_error(&status))?;
        shared.retain(|_, lease| now < lease.share_until);
        shared.insert(
            seconds,
            Lease {
                id,
                keys: transaction.writes.len(),
                share_until: now + extension,
            },
        );
        Ok(id)
    }

    /// Forgets all leases after one has turned out to be gone.
    pub async fn forget(&self) {
        self.shared.lock().await.clear();
    }
}

/// A twentieth of the time to live, at least a second.
fn extension(seconds: u64) -> Duration {
    Duration::from_secs((seconds / 20).max(1)).min(LONGEST_EXTENSION)
}

/// A transaction uses one lease, so that its keys with a time to live go together, when the last of them is due.
fn longest_ttl(transaction: &Transaction) -> Option<Duration> {
    let ttl = |write: &Write| match write {
        Write::Put { ttl, .. } => *ttl,
        Write::Delete { .. } => None,
    };
    transaction.writes.iter().filter_map(ttl).max()
}
