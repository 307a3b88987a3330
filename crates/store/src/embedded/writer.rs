//! Group commit: transactions are evaluated as they arrive and collect in a batch while the log thread makes the
//! batch before it durable. Only then are they published and answered.

use std::io;
use std::mem;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::files::Segment;
use super::frame::{self, Kind, Salt};
use super::log::{AppendError, Log};
use super::record;
use crate::expiry::now_ms;
use crate::history::Commit;
use crate::shared::{Shared, closed};
use crate::state::{Effect, State};
use crate::{Outcome, Revision, StoreError, Transaction, Write};

/// Writes that may wait to become durable; further ones wait before they are looked at.
const PENDING_KIB: u32 = 64 << 10;

/// The largest transaction. It fits into `PENDING_KIB`.
const TRANSACTION_BYTES: usize = 32 << 20;

/// A buffer that has grown beyond this is not kept for the next batch.
const SPARE_BYTES: usize = 1 << 20;

type Answer = Result<Outcome, StoreError>;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    forming: Mutex<Forming>,
    work: Condvar,
    room: Arc<Semaphore>,
}

/// The batch that the next sync will make durable.
struct Forming {
    gate: Gate,
    /// The state after all transactions so far, ahead of what is published.
    state: State,
    frame: Vec<u8>,
    commits: Vec<Commit>,
    waiting: Vec<Waiting>,
}

enum Gate {
    Open,
    Closing,
    ReadOnly(String),
}

struct Waiting {
    outcome: Outcome,
    reply: oneshot::Sender<Answer>,
    _room: OwnedSemaphorePermit,
}

struct Batch {
    state: State,
    frame: Vec<u8>,
    commits: Vec<Commit>,
    waiting: Vec<Waiting>,
}

/// An outcome that depends on nothing undecided is known at once.
enum Submitted {
    Decided(Outcome),
    Pending(oneshot::Receiver<Answer>),
}

impl Writer {
    pub fn new(shared: Arc<Shared>) -> Arc<Self> {
        let mut frame = Vec::new();
        frame::begin(&mut frame);
        let state = State::clone(&shared.state());
        let forming = Forming {
            gate: Gate::Open,
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
        match self.submit(&transaction, room)? {
            Submitted::Decided(outcome) => Ok(outcome),
            Submitted::Pending(reply) => {
                // Whoever gives up waiting here changes nothing: the transaction is under way.
                reply
                    .await
                    .unwrap_or_else(|_| Err(StoreError::Unknown("the log thread has ended".into())))
            }
        }
    }

    /// Lets the log thread finish what it has and end.
    pub fn close(&self) {
        let mut forming = self.forming.lock();
        if matches!(forming.gate, Gate::Open) {
            forming.gate = Gate::Closing;
        }
        self.room.close();
        self.work.notify_one();
    }

    fn submit(&self, transaction: &Transaction, room: OwnedSemaphorePermit) -> Result<Submitted, StoreError> {
        let mut forming = self.forming.lock();
        match &forming.gate {
            Gate::Open => (),
            Gate::Closing => return Err(closed()),
            Gate::ReadOnly(why) => return Err(StoreError::ReadOnly(why.clone())),
        }
        let now_ms = now_ms();
        let outcome = match forming.state.transact(transaction, now_ms) {
            Effect::Conflict(current) => Outcome::Conflict { current },
            Effect::Unchanged => Outcome::Committed {
                revision: forming.state.revision,
            },
            Effect::Changed(events) => {
                let revision = forming.state.revision;
                record::write_transaction(&mut forming.frame, &events);
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

    /// Waits for work; `None` when there will be no more.
    fn next_batch(&self, spare: Vec<u8>) -> Option<Batch> {
        let mut forming = self.forming.lock();
        while forming.waiting.is_empty() {
            if matches!(forming.gate, Gate::Closing) {
                return None;
            }
            self.work.wait(&mut forming);
        }
        Some(Batch {
            state: forming.state.clone(),
            frame: mem::replace(&mut forming.frame, spare),
            commits: mem::take(&mut forming.commits),
            waiting: mem::take(&mut forming.waiting),
        })
    }

    /// Takes back everything that is not published. What is forming was evaluated on top of it and fails with it.
    fn reject(&self, batch: Batch, gate: Gate, error: impl Fn() -> StoreError, later: impl Fn() -> StoreError) {
        let mut forming = self.forming.lock();
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

/// Makes batches durable one after the other until the store is closed. `stored` hears where each of them went.
pub(crate) fn run(writer: &Writer, mut log: Log, salt: Salt, mut stored: impl FnMut(Segment)) {
    let _ended = Ended(writer);
    let mut spare = Vec::new();
    loop {
        frame::begin(&mut spare);
        let Some(mut batch) = writer.next_batch(spare) else {
            return;
        };
        match append(&mut log, &mut batch, salt) {
            Ok(segment) => {
                segment.into_iter().for_each(&mut stored);
                spare = batch.publish(&writer.shared);
            }
            Err(AppendError::NothingWritten(error)) => {
                spare = Vec::new();
                tracing::error!(%error, "a batch could not be written");
                let unavailable = || StoreError::Unavailable(format!("the log cannot be written: {error}"));
                writer.reject(batch, Gate::Open, unavailable, unavailable);
            }
            Err(AppendError::Unknown(error)) => return stop(writer, batch, &error),
        }
    }
}

/// Refuses writes when the log thread ends, be it by a panic: nobody would answer them.
struct Ended<'a>(&'a Writer);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut forming = self.0.forming.lock();
        if matches!(forming.gate, Gate::Open) {
            forming.gate = Gate::ReadOnly("the log thread has ended; restart".into());
        }
        forming.waiting.clear();
    }
}

/// After a failed sync nobody can tell what is on disk, so nothing more is written there.
fn stop(writer: &Writer, batch: Batch, error: &io::Error) {
    tracing::error!(%error, "the log could not be synced; the store is read-only until the next start");
    let why = format!("the log could not be synced: {error}; restart when the disk works again");
    let gate = Gate::ReadOnly(why.clone());
    let unknown = || StoreError::Unknown(format!("the log could not be synced: {error}"));
    writer.reject(batch, gate, unknown, || StoreError::ReadOnly(why.clone()));
}

fn append(log: &mut Log, batch: &mut Batch, salt: Salt) -> Result<Option<Segment>, AppendError> {
    let Some(first) = batch.commits.first() else {
        return Ok(None);
    };
    let (first_revision, at_ms): (Revision, u64) = (first.revision, first.at_ms);
    frame::seal(&mut batch.frame, Kind::Log, first_revision, at_ms, salt);
    log.append(&batch.frame, first_revision, at_ms).map(Some)
}

impl Batch {
    /// Shows the batch to readers, then answers; returns the buffer for the next one.
    fn publish(self, shared: &Shared) -> Vec<u8> {
        let now_ms = self.commits.last().map(|commit| commit.at_ms);
        if let Some(now_ms) = now_ms {
            shared.publish(self.state, self.commits, now_ms);
        }
        for waiting in self.waiting {
            let _ = waiting.reply.send(Ok(waiting.outcome));
        }
        if self.frame.capacity() > SPARE_BYTES {
            Vec::new()
        } else {
            self.frame
        }
    }
}

fn transaction_bytes(transaction: &Transaction) -> usize {
    let bytes = |write: &Write| match write {
        Write::Put { key, value, .. } => key.len() + value.len(),
        Write::Delete { key } => key.len(),
    };
    transaction.writes.iter().map(bytes).sum()
}
