//! etcd's v3 API over any engine, so that upstream's API server and etcd's own clients can use the embedded store.
//!
//! [`Server`] is a cluster of one member. `read` answers ranges, `plan` decides what a transaction does and `transact` does
//! it, `watch` streams, `lease` remembers which keys were put with which lease, `accept` takes connections. Values pass a
//! [`Codec`] the other way round: they lie in the store as our API server wants them, and clients see them as they would lie
//! in etcd.
//!
//! What is not supported is refused: puts that keep the old value, ranges sorted by value, and reads of
//! a key in a transaction that writes it later. A key's `version` counts the revisions since it was created, not its writes.
//! Leases end with the process, though not the time to live of their keys.

mod accept;
mod lease;
mod plan;
mod read;
mod transact;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::sync::RwLock;
use tonic::{Request, Response, Status, Streaming};

pub use self::accept::serve;

use self::lease::Leases;
use crate::etcd::Codec;
use crate::etcd::proto::kv_server::{Kv, KvServer};
use crate::etcd::proto::lease_server::{Lease, LeaseServer};
use crate::etcd::proto::maintenance_server::{Maintenance, MaintenanceServer};
use crate::etcd::proto::watch_server::{Watch, WatchServer};
use crate::etcd::proto::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, KeyValue, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseLeasesResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, ResponseHeader, StatusRequest, StatusResponse, TxnRequest, TxnResponse,
    WatchRequest, WatchResponse,
};
use crate::{Entry, Revision, Snapshot, Store, StoreError};

/// The version of etcd whose API this is.
const VERSION: &str = "3.6.0";

/// The only member of the only cluster.
const CLUSTER: u64 = 1;
const MEMBER: u64 = 1;
const TERM: u64 = 1;

/// The largest request.
const MAX_REQUEST_BYTES: usize = 8 << 20;

/// A client that has vanished is noticed, however quiet its watches are.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct Server(Arc<Parts>);

struct Parts {
    store: Arc<dyn Store>,
    codec: Arc<dyn Codec>,
    leases: Leases,
    /// Shared by transactions that know their keys, taken alone by those of spans.
    turns: RwLock<()>,
}

impl Server {
    pub fn new(store: Arc<dyn Store>, codec: Arc<dyn Codec>) -> Server {
        Server(Arc::new(Parts {
            store,
            codec,
            leases: Leases::default(),
            turns: RwLock::default(),
        }))
    }

    fn router(&self) -> tonic::transport::server::Router {
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_PATIENCE))
            .max_concurrent_streams(serving::MAX_STREAMS)
            .http2_max_pending_accept_reset_streams(Some(serving::MAX_PENDING_RESETS))
            .http2_max_local_error_reset_streams(Some(serving::MAX_ERROR_RESETS))
            .http2_max_header_list_size(serving::MAX_HEADER_BYTES as u32)
            .add_service(KvServer::new(self.clone()).max_decoding_message_size(MAX_REQUEST_BYTES))
            .add_service(WatchServer::new(self.clone()))
            .add_service(LeaseServer::new(self.clone()))
            .add_service(MaintenanceServer::new(self.clone()))
    }
}

impl Parts {
    /// The newest state, or that of a revision.
    async fn snapshot(&self, revision: i64) -> Result<Arc<dyn Snapshot>, Status> {
        let found = match Revision::try_from(revision) {
            Ok(0) | Err(_) => self.store.latest().await,
            Ok(revision) => self.store.snapshot_at(revision).await,
        };
        found.map_err(|error| status(&error))
    }

    fn key_value(&self, entry: &Entry) -> Result<KeyValue, Status> {
        let value = self.codec.to_disk(&entry.key, &entry.value);
        let value = value.map_err(|error| Status::internal(format!("{}: {error}", entry.key)))?;
        Ok(KeyValue {
            value: value.into(),
            ..self.key_alone(entry)
        })
    }

    /// All of an entry but its value.
    fn key_alone(&self, entry: &Entry) -> KeyValue {
        KeyValue {
            key: entry.key.as_bytes().into(),
            create_revision: entry.create_revision as i64,
            mod_revision: entry.mod_revision as i64,
            version: (entry.mod_revision - entry.create_revision) as i64 + 1,
            lease: self.leases.lease_id(entry),
            ..KeyValue::default()
        }
    }
}

fn header(revision: Revision) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: CLUSTER,
        member_id: MEMBER,
        revision: revision as i64,
        raft_term: TERM,
    })
}

/// Carries on when the client goes: what is written must be followed by what belongs to it, with others kept waiting.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<Response<T>, Status> {
    let ended = tokio::spawn(work).await;
    let ended = ended.unwrap_or_else(|error| Err(Status::internal(format!("the write was given up: {error}"))));
    ended.map(Response::new)
}

/// A key of ours is text; etcd's may be any bytes.
fn text(key: Vec<u8>) -> Result<String, Status> {
    match key.is_empty() {
        true => Err(Status::invalid_argument("etcdserver: key is not provided")),
        false => String::from_utf8(key).map_err(|_| Status::invalid_argument("keys must be UTF-8")),
    }
}

/// Errors in the words that clients of etcd look for.
fn status(error: &StoreError) -> Status {
    match error {
        StoreError::Compacted { .. } => Status::out_of_range("etcdserver: mvcc: required revision has been compacted"),
        StoreError::Future { .. } => Status::out_of_range("etcdserver: mvcc: required revision is a future revision"),
        StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::ReadOnly(_) => {
            Status::unavailable(error.to_string())
        }
        StoreError::QuotaExceeded => Status::resource_exhausted(error.to_string()),
        StoreError::Invalid(_) => Status::invalid_argument(error.to_string()),
        StoreError::Corrupt(_) | StoreError::Io(_) => Status::internal(error.to_string()),
    }
}

#[tonic::async_trait]
impl Kv for Server {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        self.0.range(request.into_inner()).await.map(Response::new)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let parts = self.0.clone();
        to_the_end(async move { parts.put(request.into_inner()).await }).await
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let parts = self.0.clone();
        to_the_end(async move { parts.delete(request.into_inner()).await }).await
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let parts = self.0.clone();
        to_the_end(async move { parts.transact(request.into_inner()).await }).await
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> Result<Response<CompactionResponse>, Status> {
        let revision = Revision::try_from(request.into_inner().revision).unwrap_or_default();
        let compacted = self.0.store.compact(revision).await;
        compacted.map_err(|error| status(&error))?;
        let header = header(self.0.store.snapshot().revision());
        Ok(Response::new(CompactionResponse { header }))
    }
}

#[tonic::async_trait]
impl Watch for Server {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<Streaming<WatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let responses = watch::open(self.0.clone(), request.into_inner());
        Ok(Response::new(Box::pin(responses)))
    }
}

#[tonic::async_trait]
impl Lease for Server {
    type LeaseKeepAliveStream = Pin<Box<dyn Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send>>;

    /// Answers one request after the other, so that a client that does not read is not answered without end.
    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let parts = self.0.clone();
        let answers = request.into_inner().then(move |asked| {
            let parts = parts.clone();
            async move { parts.keep_alive(asked?.id).await }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let (parts, id) = (self.0.clone(), request.into_inner().id);
        to_the_end(async move {
            let header = header(parts.revoke(id).await?);
            Ok(LeaseRevokeResponse { header })
        })
        .await
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        self.0.time_to_live(request.into_inner()).await.map(Response::new)
    }

    async fn lease_leases(&self, _: Request<LeaseLeasesRequest>) -> Result<Response<LeaseLeasesResponse>, Status> {
        let ids = self.0.leases.ids();
        Ok(Response::new(LeaseLeasesResponse {
            header: header(self.0.store.snapshot().revision()),
            leases: ids.into_iter().map(|id| LeaseStatus { id }).collect(),
        }))
    }

    async fn lease_grant(&self, request: Request<LeaseGrantRequest>) -> Result<Response<LeaseGrantResponse>, Status> {
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        let (id, ttl) = self.0.leases.grant(id, ttl)?;
        Ok(Response::new(LeaseGrantResponse {
            header: header(self.0.store.snapshot().revision()),
            id,
            ttl,
            error: String::new(),
        }))
    }
}

#[tonic::async_trait]
impl Maintenance for Server {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let snapshot = self.0.snapshot(0).await?;
        let bytes: usize = snapshot
            .range("", "")
            .map(|entry| entry.key.len() + entry.value.len())
            .sum();
        Ok(Response::new(StatusResponse {
            header: header(snapshot.revision()),
            version: VERSION.to_owned(),
            db_size: bytes as i64,
            leader: MEMBER,
        }))
    }
}
