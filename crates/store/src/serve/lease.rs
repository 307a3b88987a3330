//! Leases: how long the keys that are put with them are to live.
//!
//! The store itself deletes a key when its time is up, also if this process ends before; here is only which key was put
//! with which lease. Keeping a lease alive gives its keys their time anew; the store does not write that down, as little as
//! the leases themselves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::Status;

use super::{Parts, header, status};
use crate::etcd::proto::{LeaseKeepAliveResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse};
use crate::{Compare, Entry, Outcome, Revision, Snapshot, Transaction, Write};

/// Leases that may be open at once.
const MAX_LEASES: usize = 1 << 16;

/// A key lives at least this long, or it would be gone before its writer knows of it.
const LEAST: Duration = Duration::from_secs(1);

/// The seconds that are told of a lease that there is not.
const NO_LEASE: i64 = -1;

#[derive(Default)]
pub struct Leases(Mutex<Table>);

#[derive(Default)]
struct Table {
    leases: HashMap<i64, Lease>,
    /// The lease that a key was put with, and when.
    attached: HashMap<Arc<str>, (i64, Revision)>,
    last: i64,
}

struct Lease {
    seconds: i64,
    end: Instant,
    keys: BTreeSet<Arc<str>>,
}

/// What is to be told of a lease.
pub struct Remaining {
    pub seconds: i64,
    pub granted_seconds: i64,
    /// Some of them may be gone, or have been written without the lease.
    keys: Vec<Arc<str>>,
}

impl Leases {
    /// Opens a lease; returns its number, the next free one when none is asked for, and its seconds.
    pub fn grant(&self, id: i64, seconds: i64) -> Result<(i64, i64), Status> {
        let now = Instant::now();
        let mut table = self.0.lock();
        table.forget_ended(now);
        if table.leases.len() >= MAX_LEASES {
            return Err(Status::resource_exhausted("too many leases are open"));
        }
        let id = match id {
            0 => table.free_id(),
            id => id,
        };
        if table.leases.contains_key(&id) {
            return Err(Status::failed_precondition("etcdserver: lease already exists"));
        }
        let seconds = seconds.max(1);
        let end = now.checked_add(Duration::from_secs(seconds as u64));
        let end = end.ok_or_else(|| Status::out_of_range("etcdserver: too large lease TTL"))?;
        let lease = Lease {
            seconds,
            end,
            keys: BTreeSet::new(),
        };
        table.leases.insert(id, lease);
        Ok((id, seconds))
    }

    /// How long a key that is put now lives; for ever without a lease.
    pub fn time_left(&self, id: i64) -> Result<Option<Duration>, Status> {
        if id == 0 {
            return Ok(None);
        }
        let now = Instant::now();
        let table = self.0.lock();
        let lease = table.leases.get(&id).filter(|lease| lease.end > now);
        let lease = lease.ok_or_else(not_found)?;
        Ok(Some(lease.end.duration_since(now).max(LEAST)))
    }

    /// Notes the leases of keys that were put at a revision.
    pub fn attach(&self, keys: Vec<(Arc<str>, i64)>, revision: Revision) {
        let mut table = self.0.lock();
        for (key, id) in keys {
            table.detach(&key);
            if let Some(lease) = table.leases.get_mut(&id) {
                lease.keys.insert(key.clone());
                table.attached.insert(key, (id, revision));
            }
        }
    }

    /// The lease that an entry was put with, or 0.
    pub fn lease_id(&self, entry: &Entry) -> i64 {
        if entry.expires_at_ms == 0 {
            return 0;
        }
        match self.0.lock().attached.get(&entry.key) {
            Some((id, revision)) if *revision == entry.mod_revision => *id,
            _ => 0,
        }
    }

    /// `None` when there is no such lease.
    pub fn remaining(&self, id: i64) -> Option<Remaining> {
        let now = Instant::now();
        let table = self.0.lock();
        let lease = table.leases.get(&id).filter(|lease| lease.end > now)?;
        Some(Remaining {
            seconds: lease.end.duration_since(now).as_secs() as i64,
            granted_seconds: lease.seconds,
            keys: lease.keys.iter().cloned().collect(),
        })
    }

    pub fn ids(&self) -> Vec<i64> {
        let mut table = self.0.lock();
        table.forget_ended(Instant::now());
        table.leases.keys().copied().collect()
    }

    /// Lets a lease live as long from now on as it was granted for.
    fn renew(&self, id: i64) {
        if let Some(lease) = self.0.lock().leases.get_mut(&id) {
            // What could be granted can be granted again.
            lease.end = Instant::now()
                .checked_add(Duration::from_secs(lease.seconds as u64))
                .unwrap_or(lease.end);
        }
    }

    fn forget(&self, id: i64) {
        self.0.lock().forget(id);
    }
}

impl Table {
    fn free_id(&mut self) -> i64 {
        loop {
            self.last += 1;
            if !self.leases.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    fn detach(&mut self, key: &str) {
        if let Some((id, _)) = self.attached.remove(key)
            && let Some(lease) = self.leases.get_mut(&id)
        {
            lease.keys.remove(key);
        }
    }

    fn forget_ended(&mut self, now: Instant) {
        let ended = self.leases.iter().filter(|(_, lease)| lease.end <= now);
        let ended: Vec<i64> = ended.map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| self.forget(id));
    }

    fn forget(&mut self, id: i64) {
        let keys = self.leases.remove(&id).map(|lease| lease.keys).unwrap_or_default();
        for key in keys {
            self.attached.remove(&key);
        }
    }
}

impl Parts {
    /// Deletes all keys of a lease at once, and the lease; returns the revision after that.
    pub async fn revoke(&self, id: i64) -> Result<Revision, Status> {
        // Nobody else puts a key with this lease meanwhile.
        let _alone = self.turns.write().await;
        loop {
            let remaining = self.leases.remaining(id).ok_or_else(not_found)?;
            let snapshot = self.snapshot(0).await?;
            let mut transaction = Transaction::default();
            for entry in self.leased(id, &remaining, &*snapshot) {
                let key = entry.key.clone();
                transaction.compares.push(Compare::Unchanged {
                    key: key.clone(),
                    mod_revision: entry.mod_revision,
                });
                transaction.writes.push(Write::Delete { key });
            }
            match self.store.commit(transaction).await {
                Ok(Outcome::Committed { revision }) => {
                    self.leases.forget(id);
                    return Ok(revision);
                }
                // A key's time was up just now.
                Ok(Outcome::Conflict { .. }) => {}
                Err(error) => return Err(status(&error)),
            }
        }
    }

    /// Gives a lease and its keys their time anew. A lease that has ended is told to have none left.
    pub async fn keep_alive(&self, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
        // A key that is being put with this lease would be left with less.
        let _alone = self.turns.write().await;
        let snapshot = self.store.snapshot();
        let mut told = LeaseKeepAliveResponse {
            header: header(snapshot.revision()),
            id,
            ttl: 0,
        };
        let Some(remaining) = self.leases.remaining(id) else {
            return Ok(told);
        };
        let entries = self.leased(id, &remaining, &*snapshot);
        let ttl = Duration::from_secs(remaining.granted_seconds as u64);
        if !self.store.prolong(&entries, ttl) {
            return Err(Status::unimplemented("this store cannot keep leases alive"));
        }
        self.leases.renew(id);
        told.ttl = remaining.granted_seconds;
        Ok(told)
    }

    pub async fn time_to_live(&self, request: LeaseTimeToLiveRequest) -> Result<LeaseTimeToLiveResponse, Status> {
        let snapshot = self.snapshot(0).await?;
        let told = LeaseTimeToLiveResponse {
            header: header(snapshot.revision()),
            id: request.id,
            ttl: NO_LEASE,
            ..LeaseTimeToLiveResponse::default()
        };
        let Some(remaining) = self.leases.remaining(request.id) else {
            return Ok(told);
        };
        let keys = match request.keys {
            true => self.leased(request.id, &remaining, &*snapshot),
            false => Vec::new(),
        };
        Ok(LeaseTimeToLiveResponse {
            ttl: remaining.seconds,
            granted_ttl: remaining.granted_seconds,
            keys: keys.iter().map(|entry| entry.key.as_bytes().into()).collect(),
            ..told
        })
    }

    /// The entries that were put with a lease.
    fn leased(&self, id: i64, remaining: &Remaining, snapshot: &dyn Snapshot) -> Vec<Arc<Entry>> {
        let found = remaining.keys.iter().filter_map(|key| snapshot.get(key));
        found.filter(|entry| self.leases.lease_id(entry) == id).collect()
    }
}

fn not_found() -> Status {
    Status::not_found("etcdserver: requested lease not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_known_by_its_number_until_it_ends() {
        let leases = Leases::default();
        let (first, seconds) = leases.grant(0, 60).unwrap();
        assert_eq!(seconds, 60);
        let left = leases.time_left(first).unwrap().unwrap();
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
        assert_eq!(
            leases.grant(first, 5).unwrap_err().code(),
            tonic::Code::FailedPrecondition
        );
        assert_eq!(leases.grant(first + 1, 5).unwrap().0, first + 1);
        assert_eq!(
            leases.grant(0, 5).unwrap().0,
            first + 2,
            "a number that is taken is passed over"
        );
        assert_eq!(leases.grant(i64::MAX, 5).unwrap().0, i64::MAX);
        assert!(leases.grant(0, 5).is_ok(), "the last number does not end the counting");
        assert_eq!(leases.time_left(99).unwrap_err().code(), tonic::Code::NotFound);
        assert_eq!(leases.time_left(0).unwrap(), None);
    }

    #[test]
    fn a_lease_that_has_ended_is_gone_before_it_is_forgotten() {
        let leases = Leases::default();
        let (id, _) = leases.grant(0, 60).unwrap();
        leases.attach(vec![("a".into(), id)], 1);
        leases.0.lock().leases.get_mut(&id).unwrap().end = Instant::now();
        assert_eq!(leases.time_left(id).unwrap_err().code(), tonic::Code::NotFound);
        assert!(leases.remaining(id).is_none());
        assert!(leases.ids().is_empty());
        assert!(leases.0.lock().attached.is_empty());
    }
}
