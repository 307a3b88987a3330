//! Writes, each as a transaction of the store on what it was decided from.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::read::Span;
use super::{Parts, header, status, text};
use crate::etcd::proto::compare::{CompareResult, TargetUnion};
use crate::etcd::proto::request_op::Request as Operation;
use crate::etcd::proto::response_op::Response as Answer;
use crate::etcd::proto::{
    self, DeleteRangeRequest, DeleteRangeResponse, KeyValue, PutRequest, PutResponse, RequestOp, ResponseOp,
    TxnRequest, TxnResponse,
};
use crate::{Compare, Entry, Outcome, Revision, Snapshot, Transaction, Write};

/// How often a transaction is decided anew because somebody else was faster.
const MAX_TRIES: usize = 64;

/// What a branch of a transaction does to a snapshot.
#[derive(Default)]
struct Plan {
    transaction: Transaction,
    answers: Vec<Planned>,
}

/// An answer that lacks its revision, or one that is read once the revision is known.
enum Planned {
    Put(Option<KeyValue>),
    Deleted(Vec<KeyValue>, usize),
    Read(proto::RangeRequest),
}

impl Parts {
    pub async fn put(&self, request: PutRequest) -> Result<PutResponse, Status> {
        match self.one(Operation::RequestPut(request)).await? {
            Some(Answer::ResponsePut(response)) => Ok(response),
            _ => Err(Status::internal("a put was answered as something else")),
        }
    }

    pub async fn delete(&self, request: DeleteRangeRequest) -> Result<DeleteRangeResponse, Status> {
        match self.one(Operation::RequestDeleteRange(request)).await? {
            Some(Answer::ResponseDeleteRange(response)) => Ok(response),
            _ => Err(Status::internal("a delete was answered as something else")),
        }
    }

    async fn one(&self, operation: Operation) -> Result<Option<Answer>, Status> {
        let request = TxnRequest {
            success: vec![RequestOp {
                request: Some(operation),
            }],
            ..TxnRequest::default()
        };
        let answered = self.transact(request).await?.responses.into_iter().next();
        Ok(answered.and_then(|answered| answered.response))
    }

    pub async fn transact(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        for _ in 0..MAX_TRIES {
            let snapshot = self.snapshot(0).await?;
            let mut succeeded = true;
            let mut pins = BTreeMap::new();
            for compare in &request.compare {
                succeeded &= self.holds(compare, &*snapshot, &mut pins)?;
            }
            let branch = if succeeded { &request.success } else { &request.failure };
            let mut plan = self.plan(branch, &*snapshot, &mut pins)?;
            if plan.transaction.writes.is_empty() {
                return self.answer(succeeded, plan.answers, &*snapshot);
            }
            plan.transaction.compares = pins.into_values().collect();
            match self.store.commit(plan.transaction).await {
                Ok(Outcome::Committed { revision }) => {
                    let after = self.snapshot(revision as i64).await?;
                    return self.answer(succeeded, plan.answers, &*after);
                }
                Ok(Outcome::Conflict { .. }) => {}
                Err(error) => return Err(status(&error)),
            }
        }
        Err(Status::unavailable(
            "too many writes of the same keys at once; try again",
        ))
    }

    /// Whether a comparison holds. What was compared must still be so when the writes happen.
    fn holds(
        &self,
        compare: &proto::Compare,
        snapshot: &dyn Snapshot,
        pins: &mut BTreeMap<Arc<str>, Compare>,
    ) -> Result<bool, Status> {
        if !compare.range_end.is_empty() {
            return Err(Status::unimplemented("only single keys can be compared"));
        }
        let key: Arc<str> = text(compare.key.clone())?.into();
        let entry = snapshot.get(&key);
        pin(pins, &key, entry.as_deref());
        let found = entry.as_deref().map(|entry| self.key_value(entry)).transpose()?;
        let found = found.unwrap_or_default();
        let ordering = match &compare.target_union {
            Some(TargetUnion::Version(version)) => found.version.cmp(version),
            Some(TargetUnion::CreateRevision(revision)) => found.create_revision.cmp(revision),
            Some(TargetUnion::ModRevision(revision)) => found.mod_revision.cmp(revision),
            // An absent key has no value that any comparison could hold for.
            Some(TargetUnion::Value(_)) if entry.is_none() => return Ok(false),
            Some(TargetUnion::Value(value)) => found.value.cmp(value),
            Some(TargetUnion::Lease(_)) | None => return Err(Status::unimplemented("leases cannot be compared")),
        };
        Ok(match CompareResult::try_from(compare.result) {
            Ok(CompareResult::Equal) => ordering == Ordering::Equal,
            Ok(CompareResult::NotEqual) => ordering != Ordering::Equal,
            Ok(CompareResult::Greater) => ordering == Ordering::Greater,
            Ok(CompareResult::Less) => ordering == Ordering::Less,
            Err(_) => return Err(Status::invalid_argument("there is no such comparison")),
        })
    }

    fn plan(
        &self,
        branch: &[RequestOp],
        snapshot: &dyn Snapshot,
        pins: &mut BTreeMap<Arc<str>, Compare>,
    ) -> Result<Plan, Status> {
        let mut plan = Plan::default();
        for operation in branch {
            let planned = match &operation.request {
                Some(Operation::RequestRange(range)) => Planned::Read(range.clone()),
                Some(Operation::RequestPut(put)) => self.plan_put(put, snapshot, pins, &mut plan)?,
                Some(Operation::RequestDeleteRange(delete)) => self.plan_delete(delete, snapshot, pins, &mut plan)?,
                Some(Operation::RequestTxn(_)) => return Err(Status::unimplemented("transactions cannot be nested")),
                None => return Err(Status::invalid_argument("an operation is empty")),
            };
            plan.answers.push(planned);
        }
        plan.check()?;
        Ok(plan)
    }

    fn plan_put(
        &self,
        put: &PutRequest,
        snapshot: &dyn Snapshot,
        pins: &mut BTreeMap<Arc<str>, Compare>,
        plan: &mut Plan,
    ) -> Result<Planned, Status> {
        if put.ignore_value || put.ignore_lease {
            return Err(Status::unimplemented("a put replaces value and lease"));
        }
        let key: Arc<str> = text(put.key.clone())?.into();
        let given = Bytes::from(put.value.clone());
        let value = self.codec.from_disk(&key, &given);
        let value = value.map_err(|error| Status::invalid_argument(format!("{key}: {error}")))?;
        let mut previous = None;
        if put.prev_kv {
            let entry = snapshot.get(&key);
            pin(pins, &key, entry.as_deref());
            previous = entry.map(|entry| self.key_value(&entry)).transpose()?;
        }
        let ttl = self.leases.time_left(put.lease)?;
        plan.transaction.writes.push(Write::Put { key, value, ttl });
        Ok(Planned::Put(previous))
    }

    fn plan_delete(
        &self,
        delete: &DeleteRangeRequest,
        snapshot: &dyn Snapshot,
        pins: &mut BTreeMap<Arc<str>, Compare>,
        plan: &mut Plan,
    ) -> Result<Planned, Status> {
        let span = Span::parse(delete.key.clone(), delete.range_end.clone())?;
        let mut previous = Vec::new();
        let mut deleted = 0;
        for entry in span.entries(snapshot) {
            pin(pins, &entry.key, Some(&entry));
            if delete.prev_kv {
                previous.push(self.key_value(&entry)?);
            }
            let key = entry.key.clone();
            plan.transaction.writes.push(Write::Delete { key });
            deleted += 1;
        }
        Ok(Planned::Deleted(previous, deleted))
    }

    fn answer(&self, succeeded: bool, planned: Vec<Planned>, snapshot: &dyn Snapshot) -> Result<TxnResponse, Status> {
        let revision: Revision = snapshot.revision();
        let responses: Result<Vec<ResponseOp>, Status> = planned
            .into_iter()
            .map(|planned| {
                let answer = match planned {
                    Planned::Put(prev_kv) => Answer::ResponsePut(PutResponse {
                        header: header(revision),
                        prev_kv,
                    }),
                    Planned::Deleted(prev_kvs, deleted) => Answer::ResponseDeleteRange(DeleteRangeResponse {
                        header: header(revision),
                        deleted: deleted as i64,
                        prev_kvs,
                    }),
                    Planned::Read(range) => Answer::ResponseRange(self.range_of(snapshot, range, revision)?),
                };
                Ok(ResponseOp { response: Some(answer) })
            })
            .collect();
        Ok(TxnResponse {
            header: header(revision),
            succeeded,
            responses: responses?,
        })
    }
}

impl Plan {
    /// Reads are answered from the state after all writes, so none may stand before one.
    fn check(&self) -> Result<(), Status> {
        let reads = |planned: &Planned| matches!(planned, Planned::Read(_));
        let first_read = self.answers.iter().position(reads);
        let last_write = self.answers.iter().rposition(|planned| !reads(planned));
        match (first_read, last_write) {
            (Some(read), Some(write)) if read < write => {
                Err(Status::unimplemented("a transaction reads only after it writes"))
            }
            _ => Ok(()),
        }
    }
}

fn pin(pins: &mut BTreeMap<Arc<str>, Compare>, key: &Arc<str>, entry: Option<&Entry>) {
    let key = key.clone();
    let compare = match entry {
        Some(entry) => Compare::Unchanged {
            key: key.clone(),
            mod_revision: entry.mod_revision,
        },
        None => Compare::Absent { key: key.clone() },
    };
    pins.insert(key, compare);
}
