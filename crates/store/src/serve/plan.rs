//! What a transaction comes to on a snapshot: the writes, what they rest on, and the answers that lack a revision.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::read::{self, Span};
use super::{Parts, text};
use crate::etcd::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::etcd::proto::request_op::Request as Operation;
use crate::etcd::proto::{self, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest};
use crate::{Compare, Entry, Snapshot, Transaction, Write};

pub struct Plan<'a> {
    parts: &'a Parts,
    snapshot: &'a dyn Snapshot,
    /// What was looked at must still be so when the writes happen.
    pins: BTreeMap<Arc<str>, Compare>,
    puts: BTreeMap<Arc<str>, Write>,
    leased: Vec<(Arc<str>, i64)>,
    deletes: BTreeSet<Arc<str>>,
    deleted: Vec<Span>,
    read: Vec<Span>,
    revisions: Vec<i64>,
}

/// An answer that lacks its revision, or one that is read once the revision is known.
pub enum Planned {
    Put(Option<KeyValue>),
    Deleted(Vec<KeyValue>, usize),
    Read(RangeRequest),
    Branch(bool, Vec<Planned>),
}

impl<'a> Plan<'a> {
    pub fn new(parts: &'a Parts, snapshot: &'a dyn Snapshot) -> Plan<'a> {
        Plan {
            parts,
            snapshot,
            pins: BTreeMap::new(),
            puts: BTreeMap::new(),
            leased: Vec::new(),
            deletes: BTreeSet::new(),
            deleted: Vec::new(),
            read: Vec::new(),
            revisions: Vec::new(),
        }
    }

    /// Decides which branch of a transaction is taken and adds what it does. Transactions inside of it are decided from
    /// the same snapshot, whatever is written before them.
    pub fn branch(&mut self, request: &TxnRequest) -> Result<(bool, Vec<Planned>), Status> {
        let mut succeeded = true;
        for compare in &request.compare {
            succeeded &= self.holds(compare)?;
        }
        let (taken, other) = match succeeded {
            true => (&request.success, &request.failure),
            false => (&request.failure, &request.success),
        };
        // What can never be carried out is refused whether its turn has come or not.
        other.iter().try_for_each(check)?;
        let planned: Result<Vec<Planned>, Status> = taken.iter().map(|operation| self.operation(operation)).collect();
        Ok((succeeded, planned?))
    }

    /// The revisions that are read, besides the newest.
    pub fn revisions(&self) -> &[i64] {
        &self.revisions
    }

    pub fn has_reads(&self) -> bool {
        !self.read.is_empty()
    }

    /// What the store is to do, and the keys that are put with a lease.
    pub fn into_transaction(self) -> (Transaction, Vec<(Arc<str>, i64)>) {
        let deletes = self.deletes.into_iter().map(|key| Write::Delete { key });
        let transaction = Transaction {
            compares: self.pins.into_values().collect(),
            writes: self.puts.into_values().chain(deletes).collect(),
        };
        (transaction, self.leased)
    }

    fn operation(&mut self, operation: &RequestOp) -> Result<Planned, Status> {
        check(operation)?;
        match &operation.request {
            Some(Operation::RequestRange(range)) => self.range(range),
            Some(Operation::RequestPut(put)) => self.put(put),
            Some(Operation::RequestDeleteRange(delete)) => self.delete(delete),
            Some(Operation::RequestTxn(nested)) => {
                let (succeeded, planned) = self.branch(nested)?;
                Ok(Planned::Branch(succeeded, planned))
            }
            None => Err(empty()),
        }
    }

    /// Whether a comparison holds, for all keys of its span if it has one.
    fn holds(&mut self, compare: &proto::Compare) -> Result<bool, Status> {
        let span = Span::parse(compare.key.clone(), compare.range_end.clone())?;
        let found: Vec<Arc<Entry>> = span.entries(self.snapshot).collect();
        found.iter().for_each(|entry| self.pin(&entry.key, Some(entry)));
        if found.is_empty() {
            if compare.range_end.is_empty() {
                self.pin(&text(compare.key.clone())?.into(), None);
            }
            // An absent key has no value that any comparison could hold for.
            let is_value = compare.target == CompareTarget::Value as i32;
            return Ok(compares(compare, &KeyValue::default())? && !is_value);
        }
        found.iter().try_fold(true, |held, entry| {
            Ok(held && compares(compare, &self.parts.key_value(entry)?)?)
        })
    }

    /// Reads are answered from the state after all writes, so that none may see what is written later.
    fn range(&mut self, range: &RangeRequest) -> Result<Planned, Status> {
        match range.revision {
            ..=0 => self.read.push(Span::parse(range.key.clone(), range.range_end.clone())?),
            revision => self.revisions.push(revision),
        }
        Ok(Planned::Read(range.clone()))
    }

    fn put(&mut self, put: &PutRequest) -> Result<Planned, Status> {
        let key: Arc<str> = text(put.key.clone())?.into();
        if self.puts.contains_key(&key) || self.deleted.iter().any(|span| span.holds(&key)) {
            return Err(duplicate());
        }
        self.check_unread(&key)?;
        let given = Bytes::from(put.value.clone());
        let value = self.parts.codec.from_disk(&key, &given);
        let value = value.map_err(|error| Status::invalid_argument(format!("{key}: {error}")))?;
        let mut previous = None;
        if put.prev_kv {
            let entry = self.snapshot.get(&key);
            self.pin(&key, entry.as_deref());
            previous = entry.map(|entry| self.parts.key_value(&entry)).transpose()?;
        }
        let ttl = self.parts.leases.time_left(put.lease)?;
        if put.lease != 0 {
            self.leased.push((key.clone(), put.lease));
        }
        let write = Write::Put {
            key: key.clone(),
            value,
            ttl,
        };
        self.puts.insert(key, write);
        Ok(Planned::Put(previous))
    }

    fn delete(&mut self, delete: &DeleteRangeRequest) -> Result<Planned, Status> {
        let span = Span::parse(delete.key.clone(), delete.range_end.clone())?;
        if self.puts.keys().any(|key| span.holds(key)) {
            return Err(duplicate());
        }
        let (mut previous, mut deleted) = (Vec::new(), 0);
        let entries: Vec<Arc<Entry>> = span.entries(self.snapshot).collect();
        for entry in entries {
            self.check_unread(&entry.key)?;
            self.pin(&entry.key, Some(&entry));
            // What an operation before this one deletes is gone.
            if self.deletes.insert(entry.key.clone()) {
                deleted += 1;
                if delete.prev_kv {
                    previous.push(self.parts.key_value(&entry)?);
                }
            }
        }
        self.deleted.push(span);
        Ok(Planned::Deleted(previous, deleted))
    }

    fn check_unread(&self, key: &str) -> Result<(), Status> {
        match self.read.iter().any(|span| span.holds(key)) {
            true => Err(Status::unimplemented(
                "a transaction cannot read a key before it writes it",
            )),
            false => Ok(()),
        }
    }

    fn pin(&mut self, key: &Arc<str>, entry: Option<&Entry>) {
        let compare = match entry {
            Some(entry) => Compare::Unchanged {
                key: key.clone(),
                mod_revision: entry.mod_revision,
            },
            None => Compare::Absent { key: key.clone() },
        };
        self.pins.insert(key.clone(), compare);
    }
}

/// Refuses what is never carried out.
fn check(operation: &RequestOp) -> Result<(), Status> {
    match &operation.request {
        Some(Operation::RequestRange(range)) => {
            read::check(range)?;
            Span::parse(range.key.clone(), range.range_end.clone()).map(drop)
        }
        Some(Operation::RequestPut(put)) if put.ignore_value || put.ignore_lease => {
            Err(Status::unimplemented("a put replaces value and lease"))
        }
        Some(Operation::RequestPut(put)) => text(put.key.clone()).map(drop),
        Some(Operation::RequestDeleteRange(delete)) => {
            Span::parse(delete.key.clone(), delete.range_end.clone()).map(drop)
        }
        Some(Operation::RequestTxn(nested)) => nested.success.iter().chain(&nested.failure).try_for_each(check),
        None => Err(empty()),
    }
}

fn compares(compare: &proto::Compare, found: &KeyValue) -> Result<bool, Status> {
    let target = CompareTarget::try_from(compare.target);
    let ordering = match (target, &compare.target_union) {
        (Ok(CompareTarget::Version), Some(TargetUnion::Version(version))) => found.version.cmp(version),
        (Ok(CompareTarget::Create), Some(TargetUnion::CreateRevision(revision))) => found.create_revision.cmp(revision),
        (Ok(CompareTarget::Mod), Some(TargetUnion::ModRevision(revision))) => found.mod_revision.cmp(revision),
        (Ok(CompareTarget::Value), Some(TargetUnion::Value(value))) => found.value.cmp(value),
        (Ok(CompareTarget::Lease), Some(TargetUnion::Lease(lease))) => found.lease.cmp(lease),
        _ => return Err(Status::invalid_argument("a comparison lacks what it compares with")),
    };
    Ok(match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering == Ordering::Equal,
        Ok(CompareResult::NotEqual) => ordering != Ordering::Equal,
        Ok(CompareResult::Greater) => ordering == Ordering::Greater,
        Ok(CompareResult::Less) => ordering == Ordering::Less,
        Err(_) => return Err(Status::invalid_argument("there is no such comparison")),
    })
}

fn duplicate() -> Status {
    Status::invalid_argument("etcdserver: duplicate key given in txn request")
}

fn empty() -> Status {
    Status::invalid_argument("an operation is empty")
}
