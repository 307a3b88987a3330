//! Requests to etcd, each with a deadline, all of them only to a member that has a leader.

use std::sync::Arc;

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::{Request, Status, Streaming};

use super::members::{MemberChannel, Members, within};
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
use crate::codec::Codec;
use crate::state::State;
use crate::{Revision, StoreError};

/// Keys per page of a load.
const PAGE: i64 = 500;

/// Requests that may wait on a watch's stream: its creation and some questions for progress.
const WATCH_REQUESTS: usize = 8;

#[derive(Clone)]
pub(crate) struct Client {
    pub members: Members,
    pub scope: Scope,
    pub codec: Arc<dyn Codec>,
}

/// A member that has lost its cluster fails at once instead of leaving its clients in the past.
#[derive(Clone)]
pub(crate) struct RequireLeader;

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
    pub fn new(members: Members, scope: Scope, codec: Arc<dyn Codec>) -> Self {
        Client { members, scope, codec }
    }

    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        let txn = |channel| {
            let request = request.clone();
            async move { kv(channel).txn(request).await }
        };
        self.members.write(txn).await
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
        let compact = |channel| async move { kv(channel).compact(request).await };
        self.members.read(compact).await.map(drop)
    }

    /// A new lease; returns its ID.
    pub async fn grant(&self, ttl_seconds: u64) -> Result<i64, Status> {
        let request = LeaseGrantRequest {
            ttl: ttl_seconds as i64,
            ..LeaseGrantRequest::default()
        };
        // A lease that is granted twice only expires unused.
        let grant = |channel| async move { LeaseClient::new(channel).lease_grant(request).await };
        let granted = self.members.read(grant).await?;
        if granted.error.is_empty() {
            Ok(granted.id)
        } else {
            Err(Status::unavailable(granted.error))
        }
    }

    pub async fn version(&self, member: usize) -> Result<String, Status> {
        Ok(status(self.members.channel(member)).await?.version)
    }

    /// What the database of the member takes that is asked.
    pub async fn disk_bytes(&self) -> Result<u64, Status> {
        let member = self.members.channel(self.members.current());
        Ok(status(member).await?.db_size.max(0) as u64)
    }

    /// Watches the scope from `start` on by one member, with the states before each change if `previous`.
    pub async fn watch(&self, member: usize, start: Revision, previous: bool) -> Result<Watching, Status> {
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
        let mut client = WatchClient::new(self.members.channel(member)).max_decoding_message_size(usize::MAX);
        let responses = within(client.watch(outgoing)).await?;
        Ok(Watching { responses, requests })
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        let range = |channel| {
            let request = request.clone();
            async move { kv(channel).range(request).await }
        };
        self.members.read(range).await
    }
}

fn kv(channel: MemberChannel) -> KvClient<MemberChannel> {
    KvClient::new(channel)
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX)
}

async fn status(channel: MemberChannel) -> Result<StatusResponse, Status> {
    within(MaintenanceClient::new(channel).status(StatusRequest {})).await
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
