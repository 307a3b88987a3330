//! The contract's words in etcd's: transactions, entries, errors. Pure.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use tonic::{Code, Status};

use super::channel::NotConnected;
use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::request_op::Request;
use super::proto::response_op::Response;
use super::proto::{self, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use crate::codec::Codec;
use crate::{Compare, Entry, Outcome, Revision, StoreError, Transaction, Write};

/// No key has this revision. etcd says 0 for an absent key, which is not the same as unchanged.
const NEVER: i64 = -1;

/// The keys below a prefix such as `/registry`.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// With a slash at its end.
    pub start: String,
    pub end: Vec<u8>,
}

impl Scope {
    pub fn new(prefix: &str) -> Self {
        let start = format!("{}/", prefix.trim_end_matches('/'));
        let mut end = start.clone().into_bytes();
        // The byte after '/' is '0'.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Scope { start, end }
    }

    pub fn check(&self, transaction: &Transaction) -> Result<(), StoreError> {
        match transaction
            .writes
            .iter()
            .map(Write::key)
            .find(|key| !key.starts_with(&self.start))
        {
            Some(key) => Err(StoreError::Invalid(format!("key {key} is not below {}", self.start))),
            None => Ok(()),
        }
    }
}

pub(crate) fn txn(transaction: &Transaction, lease: i64, codec: &dyn Codec) -> Result<TxnRequest, StoreError> {
    let success = transaction
        .writes
        .iter()
        .map(|write| operation(write, lease, codec))
        .collect::<Result<_, _>>()?;
    let read = |compare: &Compare| {
        let range = RangeRequest {
            key: compare.key().into(),
            ..RangeRequest::default()
        };
        RequestOp {
            request: Some(Request::RequestRange(range)),
        }
    };
    Ok(TxnRequest {
        compare: transaction.compares.iter().map(condition).collect(),
        success,
        failure: transaction.compares.iter().map(read).collect(),
    })
}

fn condition(compare: &Compare) -> proto::Compare {
    let mod_revision = match compare {
        Compare::Absent { .. } => 0,
        Compare::Unchanged { mod_revision: 0, .. } => NEVER,
        Compare::Unchanged { mod_revision, .. } => *mod_revision as i64,
    };
    proto::Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Mod as i32,
        key: compare.key().into(),
        target_union: Some(TargetUnion::ModRevision(mod_revision)),
        ..proto::Compare::default()
    }
}

fn operation(write: &Write, lease: i64, codec: &dyn Codec) -> Result<RequestOp, StoreError> {
    let request = match write {
        Write::Put { key, value, ttl } => {
            let stored = codec
                .to_disk(key, value)
                .map_err(|error| StoreError::Invalid(format!("{key}: {error}")))?;
            let lease = if ttl.is_some() { lease } else { 0 };
            Request::RequestPut(PutRequest {
                key: key.as_bytes().into(),
                value: stored.into(),
                lease,
                ..PutRequest::default()
            })
        }
        Write::Delete { key } => Request::RequestDeleteRange(DeleteRangeRequest {
            key: key.as_bytes().into(),
            ..DeleteRangeRequest::default()
        }),
    };
    Ok(RequestOp { request: Some(request) })
}

/// What etcd answered, and whether anything changed.
pub(crate) fn outcome(
    transaction: &Transaction,
    response: TxnResponse,
    codec: &dyn Codec,
) -> Result<(Outcome, bool), StoreError> {
    let revision = header_revision(response.header)?;
    if response.succeeded {
        let changed = response.responses.iter().any(|response| match &response.response {
            Some(Response::ResponsePut(_)) => true,
            Some(Response::ResponseDeleteRange(deleted)) => deleted.deleted > 0,
            _ => false,
        });
        return Ok((Outcome::Committed { revision }, changed));
    }
    let current = response.responses.into_iter().map(|response| match response.response {
        Some(Response::ResponseRange(range)) => range.kvs.into_iter().next().map(|kv| entry(kv, codec)).transpose(),
        _ => Ok(None),
    });
    let current = current.collect::<Result<Vec<_>, _>>()?;
    if current.len() != transaction.compares.len() {
        return Err(StoreError::Unknown(
            "etcd answered fewer operations than it was given".into(),
        ));
    }
    Ok((Outcome::Conflict { current }, false))
}

pub(crate) fn entry(kv: KeyValue, codec: &dyn Codec) -> Result<Arc<Entry>, StoreError> {
    let mut entry = raw_entry(kv)?;
    entry.value = codec
        .from_disk(&entry.key, &entry.value)
        .map_err(|error| StoreError::Corrupt(format!("{} in etcd cannot be read: {error}", entry.key)))?;
    Ok(Arc::new(entry))
}

/// As `entry`, but one value that another server wrote and we cannot read must not stop all others.
pub(crate) fn entry_or_raw(kv: KeyValue, codec: &dyn Codec) -> Result<Arc<Entry>, StoreError> {
    let mut entry = raw_entry(kv)?;
    match codec.from_disk(&entry.key, &entry.value) {
        Ok(value) => entry.value = value,
        Err(error) => {
            tracing::error!(%error, key = %entry.key, "Failed to decode a value from etcd; reads of this key will fail");
            // What the codec refused must not pass for an object, which only plain text in place of ciphertext would.
            if entry.value.starts_with(b"{") {
                entry.value = Bytes::new();
            }
        }
    }
    Ok(Arc::new(entry))
}

/// The entry with its value as it lies in etcd.
fn raw_entry(kv: KeyValue) -> Result<Entry, StoreError> {
    let key = String::from_utf8(kv.key)
        .map_err(|error| StoreError::Corrupt(format!("key {:?} in etcd is not UTF-8", error.as_bytes())))?;
    Ok(Entry {
        key: key.into(),
        value: Bytes::from(kv.value),
        create_revision: kv.create_revision as Revision,
        mod_revision: kv.mod_revision as Revision,
        expires_at_ms: 0,
    })
}

pub(crate) fn header_revision(header: Option<proto::ResponseHeader>) -> Result<Revision, StoreError> {
    let revision = header.map(|header| header.revision as Revision);
    revision.ok_or_else(|| StoreError::Unknown("etcd answered without a header".into()))
}

/// The error of a request that changes nothing.
pub(crate) fn read_error(status: &Status) -> StoreError {
    StoreError::Unavailable(format!("etcd: {}", said(status)))
}

/// The error of a write: was nothing written, or does nobody know?
pub(crate) fn write_error(status: &Status) -> StoreError {
    let message = format!("etcd: {}", said(status));
    let never_sent = never_sent(status) || status.message().contains("no leader");
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => StoreError::Invalid(message),
        Code::ResourceExhausted if status.message().contains("database space exceeded") => StoreError::QuotaExceeded,
        Code::ResourceExhausted | Code::PermissionDenied | Code::Unauthenticated | Code::NotFound => {
            StoreError::Unavailable(message)
        }
        _ if never_sent => StoreError::Unavailable(message),
        _ => StoreError::Unknown(message),
    }
}

pub(crate) fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("has been compacted")
}

pub(crate) fn is_lost_lease(status: &Status) -> bool {
    status.code() == Code::NotFound && status.message().contains("lease not found")
}

pub(crate) fn never_sent(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<NotConnected>())
}

fn causes<'a>(status: &'a Status) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(status.source(), |cause: &&'a (dyn Error + 'static)| (*cause).source())
}

/// The innermost cause says most.
fn said(status: &Status) -> String {
    causes(status)
        .last()
        .map_or_else(|| status.message().to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::Identity;

    #[test]
    fn an_absent_key_is_never_unchanged() {
        let compares = vec![
            Compare::Absent {
                key: "/registry/a".into(),
            },
            Compare::Unchanged {
                key: "/registry/b".into(),
                mod_revision: 7,
            },
            Compare::Unchanged {
                key: "/registry/c".into(),
                mod_revision: 0,
            },
        ];
        let request = txn(
            &Transaction {
                compares,
                writes: vec![],
            },
            0,
            &Identity,
        )
        .unwrap();
        let revisions: Vec<_> = request
            .compare
            .iter()
            .map(|compare| compare.target_union.clone().unwrap())
            .collect();
        let expected = [0, 7, NEVER].map(TargetUnion::ModRevision);
        assert_eq!(revisions, expected);
        assert_eq!(request.failure.len(), 3, "a conflict answers with every compared key");
    }

    #[test]
    fn a_scope_ends_where_the_prefix_does() {
        let scope = Scope::new("/registry");
        assert_eq!(
            (scope.start.as_str(), &scope.end[..]),
            ("/registry/", &b"/registry0"[..])
        );
        assert_eq!(Scope::new("/registry/").start, "/registry/");
    }

    #[test]
    fn it_is_said_whether_a_failed_write_may_have_happened() {
        let unavailable = |error| matches!(error, StoreError::Unavailable(_));
        let unknown = |error| matches!(error, StoreError::Unknown(_));
        assert!(unavailable(write_error(&Status::unavailable("etcdserver: no leader"))));
        let exceeded = write_error(&Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
        assert!(matches!(exceeded, StoreError::QuotaExceeded));
        assert!(unavailable(write_error(&Status::resource_exhausted(
            "etcdserver: too many requests"
        ))));
        assert!(unknown(write_error(&Status::unavailable("etcdserver: leader changed"))));
        assert!(unknown(write_error(&Status::unavailable(
            "etcdserver: request timed out"
        ))));
        assert!(unknown(write_error(&Status::cancelled("connection closed"))));
        let too_large = Status::invalid_argument("etcdserver: request is too large");
        assert!(matches!(write_error(&too_large), StoreError::Invalid(_)));
    }
}
