//! The engine without a disk: for tests and for clusters that may forget everything.

use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::expiry::{self, now_ms};
use crate::history::{Commit, HISTORY_BYTES, History};
use crate::shared::Shared;
use crate::state::{Effect, State};
use crate::{Entry, EventStream, Outcome, Revision, Snapshot, Store, StoreError, Transaction, Write};

/// An empty store that lives as long as this process.
pub fn open() -> Arc<Memory> {
    Arc::new_cyclic(|this| Memory {
        this: this.clone(),
        shared: Shared::new(State::default(), History::new(0, HISTORY_BYTES)),
        writer: Mutex::default(),
        expiry: Once::new(),
    })
}

pub struct Memory {
    this: Weak<Memory>,
    shared: Arc<Shared>,
    /// The state that the next transaction is applied to; the same as the published one between two commits.
    writer: Mutex<State>,
    /// The expiry task starts with the first key that needs it.
    expiry: Once,
}

impl Memory {
    fn expire(&self, transaction: &Transaction) {
        if transaction
            .writes
            .iter()
            .any(|write| matches!(write, Write::Put { ttl: Some(_), .. }))
        {
            self.expiry
                .call_once(|| drop(tokio::spawn(expiry::run(self.this.clone(), self.shared.clone()))));
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.close();
    }
}

#[async_trait]
impl Store for Memory {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.shared.state()
    }

    async fn latest(&self) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.shared.check_open()?;
        Ok(self.shared.state())
    }

    async fn snapshot_at(&self, revision: Revision) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.shared.check_open()?;
        let state = self
            .shared
            .state_at(revision)
            .map_err(|missing| missing.into_error(revision))?;
        Ok(state)
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        self.shared.check_open()?;
        transaction.check()?;
        self.expire(&transaction);
        let now_ms = now_ms();
        let mut state = self.writer.lock();
        let outcome = match state.transact(&transaction, now_ms) {
            Effect::Conflict(current) => Outcome::Conflict { current },
            Effect::Unchanged => Outcome::Committed {
                revision: state.revision,
            },
            Effect::Changed(events) => {
                let commit = Commit {
                    revision: state.revision,
                    at_ms: now_ms,
                    events,
                };
                self.shared.publish(state.clone(), vec![commit], now_ms);
                Outcome::Committed {
                    revision: state.revision,
                }
            }
        };
        Ok(outcome)
    }

    async fn watch(&self, after: Revision) -> Result<Box<dyn EventStream>, StoreError> {
        self.shared.check_open()?;
        let cursor = self.shared.cursor(after).map_err(|missing| missing.into_error(after))?;
        Ok(Box::new(cursor))
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
        self.shared.forget(revision);
        Ok(())
    }

    fn prolong(&self, entries: &[Arc<Entry>], ttl: Duration) -> bool {
        self.shared.expiries.prolong(entries, ttl);
        true
    }

    async fn close(&self) {
        self.shared.close();
    }
}
