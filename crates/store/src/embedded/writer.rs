//! Group commit: transactions are evaluated as they arrive and collect in a batch while the log thread
//! ([`super::log_thread`]) makes the batch before it durable. Only then are they published and answered.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::frame;
use super::quota::Quota;
use super::record;
use crate::codec::Codec;
use crate::expiry::now_ms;
use crate::history::Commit;
use crate::shared::{Shared, closed};
use crate::state::{Effect, State};
use crate::{Event, Outcome, StoreError, Transaction, Write};

/// Writes that may wait to become durable; further ones wait before they are looked at.
const PENDING_KIB: u32 = 64 << 10;

/// The largest transaction. It fits into `PENDING_KIB`.
const TRANSACTION_BYTES: usize = 32 << 20;

/// How long the log thread waits before it looks again whether a disk that failed works.
const MEND_PAUSE: Duration = Duration::from_millis(500);

type Answer = Result<Outcome, StoreError>;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    forming: Mutex<Forming>,
    work: Condvar,
    room: Arc<Semaphore>,
    quota: Quota,
    codec: Arc<dyn Codec>,
}

/// The batch that the next sync will make durable.
struct Forming {
    gate: Gate,
    /// Why the last batch could not be written, until one can.
    trouble: Option<String>,
    /// What the quota refused last: so many bytes more than the state had.
    refused_growth: Option<u64>,
    /// The state after all transactions so far, ahead of what is published.
    state: State,
    frame: Vec<u8>,
    commits: Vec<Commit>,
    waiting: Vec<Waiting>,
}

pub(crate) enum Gate {
    Open,
    Closing,
    /// Until the log is mended.
    ReadOnly(String),
}

pub(crate) struct Waiting {
    pub outcome: Outcome,
    pub reply: oneshot::Sender<Answer>,
    _room: OwnedSemaphorePermit,
}

pub(crate) struct Batch {
    pub state: State,
    pub frame: Vec<u8>,
    pub commits: Vec<Commit>,
    pub waiting: Vec<Waiting>,
}

/// What the log thread does next.
pub(crate) enum Work {
    Append(Batch),
    /// The last batch failed a while ago.
    Mend,
    End,
}

/// An outcome that depends on nothing undecided is known at once.
enum Submitted {
    Decided(Outcome),
    Pending(oneshot::Receiver<Answer>),
}

impl Writer {
    pub fn new(shared: Arc<Shared>, quota: Quota, codec: Arc<dyn Codec>) -> Arc<Self> {
        let mut frame = Vec::new();
        frame::begin(&mut frame);
        let state = State::clone(&shared.state());
        let forming = Forming {
            gate: Gate::Open,
            trouble: None,
            refused_growth: None,
            state,
            frame,
            commits: Vec::new(),
            waiting: Vec::new(),
        };
        Arc::new(Writer {
            shared,
            forming: Mutex::new(forming),
            work: Condvar::new(),
            room: Arc::new(Semaphore::new(PENDING_KIB as usize)),
            quota,
            codec,
        })
    }

    pub async fn commit(&self, transaction: Transaction) -> Answer {
        transaction.check()?;
        let bytes = transaction_bytes(&transaction);
        if bytes > TRANSACTION_BYTES {
            return Err(StoreError::Invalid(format!(
                "{bytes} bytes are more than the {TRANSACTION_BYTES} allowed"
            )));
        }
        let room = self
            .room
            .clone()
            .acquire_many_owned(1 + (bytes >> 10) as u32)
            .await
            .map_err(|_| closed())?;
        // Before the state changes and outside of the lock: it may fail, and it takes its time.
        let stored = self.stored_values(&transaction)?;
        match self.submit(&transaction, &stored, bytes, room)? {
            Submitted::Decided(outcome) => Ok(outcome),
            Submitted::Pending(reply) => {
                // Whoever gives up waiting here changes nothing: the transaction is under way.
                reply
                    .await
                    .unwrap_or_else(|_| Err(StoreError::Unknown("the log thread has ended".into())))
            }
        }
    }

    /// The values of the puts as they are to lie in the log.
    fn stored_values(&self, transaction: &Transaction) -> Result<Vec<Bytes>, StoreError> {
        let puts = transaction.writes.iter().filter_map(|write| match write {
            Write::Put { key, value, .. } => Some((key, value)),
            Write::Delete { .. } => None,
        });
        puts.map(|(key, value)| {
            let stored = self.codec.to_disk(key, value);
            stored.map_err(|error| StoreError::Unavailable(format!("{key}: {error}")))
        })
        .collect()
    }

    /// Why writes are refused at present, from what the last ones met.
    pub fn check(&self) -> Result<(), StoreError> {
        let forming = self.forming.lock();
        match (&forming.gate, &forming.trouble) {
            (Gate::ReadOnly(why), _) | (_, Some(why)) => return Err(StoreError::ReadOnly(why.clone())),
            _ => (),
        }
        let bytes = forming.state.bytes;
        let refused = forming.refused_growth;
        match refused.is_some_and(|growth| bytes + growth > self.quota.bytes) {
            true => Err(StoreError::QuotaExceeded),
            false => Ok(()),
        }
    }

    /// Refuses writes until the log thread finds the log in order again.
    pub fn suspend(&self, why: String) {
        let mut forming = self.forming.lock();
        if !matches!(forming.gate, Gate::Closing) {
            forming.gate = Gate::ReadOnly(why.clone());
            forming.trouble = Some(why);
        }
        self.work.notify_one();
    }

    /// Waits until every write that has begun is answered.
    pub async fn settle(&self) {
        // It fails only when the store is closed, and then no write is under way.
        let _ = self.room.acquire_many(PENDING_KIB).await;
    }

    /// Lets the log thread finish what it has and end.
    pub fn close(&self) {
        self.forming.lock().gate = Gate::Closing;
        self.room.close();
        self.work.notify_one();
    }

    fn submit(
        &self,
        transaction: &Transaction,
        stored: &[Bytes],
        bytes: usize,
        room: OwnedSemaphorePermit,
    ) -> Result<Submitted, StoreError> {
        let mut forming = self.forming.lock();
        match &forming.gate {
            Gate::Open => (),
            Gate::Closing => return Err(closed()),
            Gate::ReadOnly(why) => return Err(StoreError::ReadOnly(why.clone())),
        }
        let now_ms = now_ms();
        let outcome = match forming.transact(transaction, bytes, self.quota, now_ms)? {
            Effect::Conflict(current) => Outcome::Conflict { current },
            Effect::Unchanged => Outcome::Committed {
                revision: forming.state.revision,
            },
            Effect::Changed(events) => {
                let revision = forming.state.revision;
                record::write_transaction(&mut forming.frame, &events, stored);
                forming.commits.push(Commit {
                    revision,
                    at_ms: now_ms,
                    events,
                });
                Outcome::Committed { revision }
            }
        };
        // What was compared may not be durable yet. Then the answer has to wait as well, even if nothing is written.
        if forming.state.revision == self.shared.state().revision {
            return Ok(Submitted::Decided(outcome));
        }
        let (reply, answer) = oneshot::channel();
        forming.waiting.push(Waiting {
            outcome,
            reply,
            _room: room,
        });
        self.work.notify_one();
        Ok(Submitted::Pending(answer))
    }

    /// Waits for work. `spare` is an empty frame for the batch after it.
    pub fn next_work(&self, spare: Vec<u8>) -> Work {
        let mut forming = self.forming.lock();
        while forming.waiting.is_empty() {
            if matches!(forming.gate, Gate::Closing) {
                return Work::End;
            }
            if forming.trouble.is_none() {
                self.work.wait(&mut forming);
            } else if self.work.wait_for(&mut forming, MEND_PAUSE).timed_out() {
                return Work::Mend;
            }
        }
        Work::Append(Batch {
            state: forming.state.clone(),
            frame: mem::replace(&mut forming.frame, spare),
            commits: mem::take(&mut forming.commits),
            waiting: mem::take(&mut forming.waiting),
        })
    }

    /// Makes a batch that is durable visible, then answers; returns the buffer for another one.
    pub fn publish(&self, batch: Batch) -> Vec<u8> {
        let last_ms = batch.commits.last().map(|commit| commit.at_ms);
        if let Some(now_ms) = last_ms {
            self.shared.publish(batch.state, batch.commits, now_ms);
        }
        for waiting in batch.waiting {
            let _ = waiting.reply.send(Ok(waiting.outcome));
        }
        batch.frame
    }

    pub fn published(&self) -> Arc<State> {
        self.shared.state()
    }

    /// The log works: whatever was wrong is over. Returns what it was.
    pub fn recovered(&self) -> Option<String> {
        let mut forming = self.forming.lock();
        if matches!(forming.gate, Gate::ReadOnly(_)) {
            forming.gate = Gate::Open;
        }
        forming.trouble.take()
    }

    /// The log does not work yet, by now for this reason.
    pub fn still_failing(&self, why: String) {
        let mut forming = self.forming.lock();
        if let Gate::ReadOnly(known) = &mut forming.gate {
            known.clone_from(&why);
        }
        forming.trouble = Some(why);
    }

    /// Refuses writes for good: nobody would answer them.
    pub fn end(&self, why: &str) {
        let mut forming = self.forming.lock();
        if !matches!(forming.gate, Gate::Closing) {
            forming.gate = Gate::ReadOnly(why.to_owned());
        }
        forming.waiting.clear();
    }

    /// Takes back everything that is not published. What is forming was evaluated on top of it and fails with it.
    pub fn reject(
        &self,
        batch: Batch,
        gate: Gate,
        trouble: String,
        error: impl Fn() -> StoreError,
        later: impl Fn() -> StoreError,
    ) {
        let mut forming = self.forming.lock();
        forming.trouble = Some(trouble);
        let dependent = mem::take(&mut forming.waiting);
        forming.state = State::clone(&self.shared.state());
        forming.commits.clear();
        frame::begin(&mut forming.frame);
        if !matches!(forming.gate, Gate::Closing) {
            forming.gate = gate;
        }
        drop(forming);
        for waiting in batch.waiting {
            let _ = waiting.reply.send(Err(error()));
        }
        for waiting in dependent {
            let _ = waiting.reply.send(Err(later()));
        }
    }
}

impl Forming {
    /// Evaluates a transaction that writes `bytes`, on top of all before it.
    fn transact(
        &mut self,
        transaction: &Transaction,
        bytes: usize,
        quota: Quota,
        now_ms: u64,
    ) -> Result<Effect, StoreError> {
        if !quota.concerns(self.state.bytes, bytes) {
            return Ok(self.state.transact(transaction, now_ms));
        }
        // A clone of the state is one pointer; it is taken only here, where the state is close to its bound.
        let before = self.state.clone();
        let effect = self.state.transact(transaction, now_ms);
        let refused = |events: &[Event]| quota.refuses(before.bytes, self.state.bytes, events);
        if let Effect::Changed(events) = &effect
            && refused(events)
        {
            self.refused_growth = Some(self.state.bytes - before.bytes);
            self.state = before;
            return Err(StoreError::QuotaExceeded);
        }
        Ok(effect)
    }
}

fn transaction_bytes(transaction: &Transaction) -> usize {
    let bytes = |write: &Write| match write {
        Write::Put { key, value, .. } => key.len() + value.len(),
        Write::Delete { key } => key.len(),
    };
    transaction.writes.iter().map(bytes).sum()
}
