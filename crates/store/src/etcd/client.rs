//! Requests to etcd, each with a deadline, all of them only to a member that has a leader.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::codec::Codec;
use super::proto::kv_client::KvClient;
use super::proto::lease_client::LeaseClient;
use super::proto::maintenance_client::MaintenanceClient;
use super::proto::range_request::{SortOrder, SortTarget};
use super::proto::watch_client::WatchClient;
use super::proto::watch_request::RequestUnion;
use super::proto::{
    CompactionRequest, LeaseGrantRequest, RangeRequest, RangeResponse, StatusRequest, StatusResponse, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use super::wire::{self, Scope};
use crate::state::State;
use crate::{Revision, StoreError};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Keys per page of a load.
const PAGE: i64 = 500;

/// Requests that may wait on a watch's stream: its creation and some questions for progress.
const WATCH_REQUESTS: usize = 8;

#[derive(Clone)]
pub(crate) struct Client {
    channel: InterceptedService<Channel, RequireLeader>,
    pub scope: Scope,
    pub codec: Arc<dyn Codec>,
}

/// A member that has lost its cluster fails at once instead of leaving its clients in the past.
#[derive(Clone)]
struct RequireLeader;

impl Interceptor for RequireLeader {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        Ok(request)
    }
}

/// An open watch of the whole scope.
pub(crate) struct Watching {
    pub responses: Streaming<WatchResponse>,
    requests: mpsc::Sender<WatchRequest>,
}

impl Watching {
    /// Asks up to which revision the watch is complete. Sent again by whoever still waits, so a full queue does no harm.
    pub fn ask_for_progress(&self) {
        let request = RequestUnion::ProgressRequest(WatchProgressRequest {});
        let _ = self.requests.try_send(WatchRequest {
            request_union: Some(request),
        });
    }
}

/// What an unchanged scope looks like from the outside.
pub(crate) struct Fingerprint {
    pub keys: usize,
    pub newest: Revision,
}

impl Client {
    pub fn new(channel: Channel, scope: Scope, codec: Arc<dyn Codec>) -> Self {
        Client {
            channel: InterceptedService::new(channel, RequireLeader),
            scope,
            codec,
        }
    }

    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        within(self.kv().txn(request)).await
    }

    /// The cluster's revision, agreed on by a quorum. Asks for a key that is never there.
    pub async fn head(&self) -> Result<Revision, StoreError> {
        let request = RangeRequest {
            key: self.scope.start.clone().into(),
            ..RangeRequest::default()
        };
        let response = self.range(request).await.map_err(|status| wire::read_error(&status))?;
        wire::header_revision(response.header)
    }

    /// Whether history still reaches back to `revision`.
    pub async fn check_history(&self, revision: Revision) -> Result<(), Status> {
        let request = RangeRequest {
            key: self.scope.start.clone().into(),
            revision: revision as i64,
            ..RangeRequest::default()
        };
        self.range(request).await.map(drop)
    }

    pub async fn fingerprint(&self, revision: Revision) -> Result<Fingerprint, Status> {
        let request = RangeRequest {
            key: self.scope.start.clone().into(),
            range_end: self.scope.end.clone(),
            limit: 1,
            revision: revision as i64,
            sort_order: SortOrder::Descend as i32,
            sort_target: SortTarget::Mod as i32,
            keys_only: true,
            ..RangeRequest::default()
        };
        let response = self.range(request).await?;
        let newest = response.kvs.first().map_or(0, |kv| kv.mod_revision as Revision);
        Ok(Fingerprint {
            keys: response.count as usize,
            newest,
        })
    }

    /// Everything in the scope, now (`revision` 0) or as it was then. Shares with `known` what has not changed.
    pub async fn load(&self, revision: Revision, known: &State) -> Result<State, LoadError> {
        let mut state = State::default();
        let mut request = RangeRequest {
            key: self.scope.start.clone().into(),
            range_end: self.scope.end.clone(),
            limit: PAGE,
            revision: revision as i64,
            ..RangeRequest::default()
        };
        loop {
            let page = self.range(request.clone()).await.map_err(LoadError::Status)?;
            if request.revision == 0 {
                request.revision = wire::header_revision(page.header).map_err(LoadError::Store)? as i64;
            }
            state.revision = request.revision as Revision;
            let Some(last) = page.kvs.last() else { return Ok(state) };
            request.key = last.key.clone();
            request.key.push(0);
            for kv in page.kvs {
                let known = std::str::from_utf8(&kv.key)
                    .ok()
                    .and_then(|key| known.at(key, kv.mod_revision as Revision));
                let entry = known
                    .map_or_else(|| wire::entry(kv, &*self.codec), Ok)
                    .map_err(LoadError::Store)?;
                state.restore(entry);
            }
            if !page.more {
                return Ok(state);
            }
        }
    }

    pub async fn compact(&self, revision: Revision) -> Result<(), Status> {
        let request = CompactionRequest {
            revision: revision as i64,
        };
        within(self.kv().compact(request)).await.map(drop)
    }

    /// A new lease; returns its ID.
    pub async fn grant(&self, ttl_seconds: u64) -> Result<i64, Status> {
        let request = LeaseGrantRequest {
            ttl: ttl_seconds as i64,
            ..LeaseGrantRequest::default()
        };
        let granted = within(LeaseClient::new(self.channel.clone()).lease_grant(request)).await?;
        if granted.error.is_empty() {
            Ok(granted.id)
        } else {
            Err(Status::unavailable(granted.error))
        }
    }

    pub async fn version(&self) -> Result<String, Status> {
        Ok(self.status().await?.version)
    }

    /// What the database of the member takes that is asked.
    pub async fn disk_bytes(&self) -> Result<u64, Status> {
        Ok(self.status().await?.db_size.max(0) as u64)
    }

    async fn status(&self) -> Result<StatusResponse, Status> {
        within(MaintenanceClient::new(self.channel.clone()).status(StatusRequest {})).await
    }

    /// Watches the scope from `start` on, with the states before each change if `previous`.
    pub async fn watch(&self, start: Revision, previous: bool) -> Result<Watching, Status> {
        let (requests, queue) = mpsc::channel(WATCH_REQUESTS);
        let create = WatchCreateRequest {
            key: self.scope.start.clone().into(),
            range_end: self.scope.end.clone(),
            start_revision: start as i64,
            progress_notify: true,
            prev_kv: previous,
            ..WatchCreateRequest::default()
        };
        let create = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        requests
            .try_send(create)
            .map_err(|_| Status::internal("the watch's queue is closed"))?;
        let outgoing = stream::unfold(queue, |mut queue| async {
            queue.recv().await.map(|request| (request, queue))
        });
        let mut client = WatchClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        let responses = within(client.watch(outgoing)).await?;
        Ok(Watching { responses, requests })
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        within(self.kv().range(request)).await
    }

    fn kv(&self) -> KvClient<InterceptedService<Channel, RequireLeader>> {
        KvClient::new(self.channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX)
    }
}

pub(crate) enum LoadError {
    Status(Status),
    Store(StoreError),
}

impl LoadError {
    pub fn into_error(self) -> StoreError {
        match self {
            LoadError::Status(status) => wire::read_error(&status),
            LoadError::Store(error) => error,
        }
    }
}

async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match timeout(REQUEST_TIMEOUT, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "no answer within {} s",
            REQUEST_TIMEOUT.as_secs()
        ))),
    }
}
