//! Writes, each as a transaction of the store on what it was decided from.

use std::collections::HashMap;

use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use tonic::Status;

use super::plan::{Plan, Planned};
use super::{Parts, header, status};
use crate::etcd::proto::request_op::Request as Operation;
use crate::etcd::proto::response_op::Response as Answer;
use crate::etcd::proto::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use crate::{Outcome, Revision, Snapshot, Transaction};

/// How often a transaction is decided anew because somebody else was faster.
const MAX_TRIES: usize = 64;

/// Snapshots by what requests call them: 0 is the newest.
type Snapshots = HashMap<i64, std::sync::Arc<dyn Snapshot>>;

/// Held while a transaction is decided and carried out.
#[expect(dead_code, reason = "guards are only held")]
enum Turn<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
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
            let _turn = self.turn(&request).await;
            let newest = self.snapshot(0).await?;
            let mut plan = Plan::new(self, &*newest);
            let (succeeded, answers) = plan.branch(&request)?;
            let mut snapshots = self.past(plan.revisions()).await?;
            let reads = plan.has_reads();
            let (transaction, leased) = plan.into_transaction();
            if transaction.writes.is_empty() {
                let revision = newest.revision();
                snapshots.insert(0, newest);
                return self.answer(succeeded, answers, revision, &snapshots);
            }
            if let Some(revision) = self.carry_out(transaction).await? {
                self.leases.attach(leased, revision);
                if reads {
                    let after = self.snapshot(revision as i64).await.map_err(but_written)?;
                    snapshots.insert(0, after);
                }
                return self
                    .answer(succeeded, answers, revision, &snapshots)
                    .map_err(but_written);
            }
        }
        Err(Status::unavailable(
            "too many writes of the same keys at once; try again",
        ))
    }

    /// Spans cannot be pinned as keys can: nobody else writes while what lies in one decides or is deleted.
    async fn turn(&self, request: &TxnRequest) -> Turn<'_> {
        match has_spans(request) {
            true => Turn::Alone(self.turns.write().await),
            false => Turn::Shared(self.turns.read().await),
        }
    }

    /// The revision of the transaction, or `None` when what it was decided from is no longer so.
    async fn carry_out(&self, transaction: Transaction) -> Result<Option<Revision>, Status> {
        match self.store.commit(transaction).await {
            Ok(Outcome::Committed { revision }) => Ok(Some(revision)),
            Ok(Outcome::Conflict { .. }) => Ok(None),
            Err(error) => Err(status(&error)),
        }
    }

    /// The older states that are read. Once something is written it is too late to find that they are gone.
    async fn past(&self, revisions: &[i64]) -> Result<Snapshots, Status> {
        let mut snapshots = Snapshots::new();
        for revision in revisions {
            snapshots.insert(*revision, self.snapshot(*revision).await?);
        }
        Ok(snapshots)
    }

    fn answer(
        &self,
        succeeded: bool,
        planned: Vec<Planned>,
        revision: Revision,
        snapshots: &Snapshots,
    ) -> Result<TxnResponse, Status> {
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
                    Planned::Read(range) => {
                        let snapshot = snapshots.get(&range.revision.max(0));
                        let snapshot = snapshot.ok_or_else(|| Status::internal("a snapshot was forgotten"))?;
                        Answer::ResponseRange(self.range_of(&**snapshot, range, revision)?)
                    }
                    Planned::Branch(succeeded, planned) => {
                        Answer::ResponseTxn(self.answer(succeeded, planned, revision, snapshots)?)
                    }
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

/// A failure after the writes, told so that nobody takes it for a refusal.
fn but_written(error: Status) -> Status {
    Status::unknown(format!("the writes were made, but then: {}", error.message()))
}

fn has_spans(request: &TxnRequest) -> bool {
    let mut operations = request.success.iter().chain(&request.failure);
    request.compare.iter().any(|compare| !compare.range_end.is_empty())
        || operations.any(|operation| match &operation.request {
            Some(Operation::RequestDeleteRange(delete)) => !delete.range_end.is_empty(),
            Some(Operation::RequestTxn(nested)) => has_spans(nested),
            _ => false,
        })
}
