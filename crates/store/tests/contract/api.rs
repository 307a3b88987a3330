//! etcd's API as clients other than API servers use it, held to a real etcd and to our server of it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::engines;
use crate::etcd_server::EtcdServer;
use crate::kit::PATIENCE;

#[allow(clippy::all, clippy::pedantic, reason = "generated")]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

use proto::compare::{CompareResult, CompareTarget, TargetUnion};
use proto::kv_client::KvClient;
use proto::lease_client::LeaseClient;
use proto::range_request::{SortOrder, SortTarget};
use proto::request_op::Request;
use proto::response_op::Response;
use proto::watch_client::WatchClient;
use proto::watch_create_request::FilterType;
use proto::watch_request::RequestUnion;
use proto::*;

/// A server, and what has to stay alive beside it.
pub struct Peer {
    channel: Channel,
    _keep: Box<dyn std::any::Any + Send>,
}

/// `None`, said loudly, where etcd is not installed.
pub async fn etcd() -> Option<Peer> {
    let server = EtcdServer::start()?;
    let channel = connect(&server.endpoint()).await;
    Some(Peer {
        channel,
        _keep: Box::new(server),
    })
}

pub async fn served() -> Option<Peer> {
    let world = engines::embedded().await?;
    let (endpoint, _) = engines::serve(world.store.clone(), std::future::pending()).await;
    Some(Peer {
        channel: connect(&endpoint).await,
        _keep: Box::new(world),
    })
}

async fn connect(endpoint: &str) -> Channel {
    let endpoint = Endpoint::from_shared(endpoint.to_owned()).unwrap();
    let connected = async {
        loop {
            if let Ok(channel) = endpoint.connect().await
                && KvClient::new(channel.clone()).range(key("a")).await.is_ok()
            {
                return channel;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, connected).await.expect("the server does not come up")
}

impl Peer {
    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
    }

    async fn put(&self, key: &str, value: &str) -> i64 {
        let put = self.kv().put(put(key, value)).await.unwrap();
        put.into_inner().header.unwrap().revision
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        Ok(self.kv().range(request).await?.into_inner())
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        Ok(self.kv().txn(request).await?.into_inner())
    }

    /// A stream with a first watch; etcd does not answer before there is one.
    async fn watch(&self, first: WatchCreateRequest) -> Watching {
        let (requests, mut queue) = mpsc::channel(16);
        requests.send(creating(first)).await.unwrap();
        let outgoing = futures_util::stream::poll_fn(move |context| queue.poll_recv(context));
        let responses = WatchClient::new(self.channel.clone()).watch(outgoing).await.unwrap();
        Watching {
            requests,
            responses: responses.into_inner(),
        }
    }
}

struct Watching {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl Watching {
    async fn create(&self, request: WatchCreateRequest) {
        self.requests.send(creating(request)).await.unwrap();
    }

    async fn next(&mut self) -> WatchResponse {
        let next = timeout(PATIENCE, self.responses.message()).await;
        next.expect("the watch hangs").unwrap().expect("the stream ended")
    }

    /// The next response that carries events.
    async fn events(&mut self) -> Vec<String> {
        loop {
            let response = self.next().await;
            if !response.events.is_empty() {
                return response.events.iter().map(line).collect();
            }
        }
    }
}

fn creating(request: WatchCreateRequest) -> WatchRequest {
    WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(request)),
    }
}

fn line(event: &Event) -> String {
    let kv = event.kv.as_ref().unwrap();
    let sign = match event.r#type() {
        event::EventType::Put => '+',
        event::EventType::Delete => '-',
    };
    format!("{sign}{} {}", text(&kv.key), text(&kv.value))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn key(key: &str) -> RangeRequest {
    RangeRequest {
        key: key.into(),
        ..RangeRequest::default()
    }
}

/// All keys that begin with a letter.
fn from(first: &str) -> RangeRequest {
    RangeRequest {
        key: first.into(),
        range_end: after(first),
        ..RangeRequest::default()
    }
}

fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().unwrap() += 1;
    end
}

fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        ..PutRequest::default()
    }
}

fn deletes(key: &str, range_end: Vec<u8>) -> Request {
    Request::RequestDeleteRange(DeleteRangeRequest {
        key: key.into(),
        range_end,
        ..DeleteRangeRequest::default()
    })
}

fn puts(key: &str, value: &str) -> Request {
    Request::RequestPut(put(key, value))
}

fn operations(requests: impl IntoIterator<Item = Request>) -> Vec<RequestOp> {
    let operation = |request| RequestOp { request: Some(request) };
    requests.into_iter().map(operation).collect()
}

fn always(requests: impl IntoIterator<Item = Request>) -> TxnRequest {
    TxnRequest {
        success: operations(requests),
        ..TxnRequest::default()
    }
}

fn compare(key: &str, range_end: Vec<u8>, result: CompareResult, with: TargetUnion) -> Compare {
    let target = match with {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        result: result as i32,
        target: target as i32,
        key: key.into(),
        range_end,
        target_union: Some(with),
    }
}

fn keys(response: &RangeResponse) -> Vec<String> {
    response.kvs.iter().map(|kv| text(&kv.key)).collect()
}

pub async fn ranges_are_sorted_filtered_and_counted(peer: Peer) {
    let first = peer.put("c", "1").await;
    peer.put("a", "2").await;
    let third = peer.put("b", "3").await;
    peer.put("c", "4").await;
    let all = RangeRequest {
        key: vec![0],
        range_end: vec![0],
        ..RangeRequest::default()
    };
    let by = |target: SortTarget, order: SortOrder| RangeRequest {
        sort_target: target as i32,
        sort_order: order as i32,
        ..all.clone()
    };
    let sorted = |request| async { keys(&peer.range(request).await.unwrap()) };
    assert_eq!(sorted(by(SortTarget::Key, SortOrder::Descend)).await, ["c", "b", "a"]);
    assert_eq!(sorted(by(SortTarget::Mod, SortOrder::None)).await, ["a", "b", "c"]);
    assert_eq!(sorted(by(SortTarget::Create, SortOrder::None)).await, ["c", "a", "b"]);
    assert_eq!(
        sorted(by(SortTarget::Create, SortOrder::Descend)).await,
        ["b", "a", "c"]
    );

    let page = RangeRequest {
        limit: 1,
        ..by(SortTarget::Create, SortOrder::Ascend)
    };
    let page = peer.range(page).await.unwrap();
    assert_eq!((keys(&page), page.more, page.count), (vec!["c".to_owned()], true, 3));
    let filtered = RangeRequest {
        limit: 2,
        max_create_revision: third - 1,
        min_create_revision: first,
        ..all.clone()
    };
    let filtered = peer.range(filtered).await.unwrap();
    assert_eq!(
        (keys(&filtered), filtered.more),
        (vec!["a".to_owned(), "c".to_owned()], false)
    );
    let newer = RangeRequest {
        min_mod_revision: third,
        keys_only: true,
        ..all.clone()
    };
    let newer = peer.range(newer).await.unwrap();
    assert_eq!(keys(&newer), ["b", "c"]);
    assert!(newer.kvs.iter().all(|kv| kv.value.is_empty()));
    let counted = RangeRequest {
        count_only: true,
        limit: 1,
        ..all
    };
    let counted = peer.range(counted).await.unwrap();
    assert_eq!((counted.kvs.len(), counted.more, counted.count), (0, false, 3));
}

pub async fn what_cannot_be_read_keeps_the_writes_of_its_transaction_out(peer: Peer) {
    let revision = peer.put("a", "1").await;
    let future = RangeRequest {
        revision: revision + 100,
        ..key("a")
    };
    let refused = peer.txn(always([puts("b", "2"), Request::RequestRange(future)])).await;
    assert_eq!(refused.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(peer.range(key("b")).await.unwrap().count, 0);

    let then = RangeRequest { revision, ..key("a") };
    let read = [
        puts("a", "2"),
        Request::RequestRange(then),
        Request::RequestRange(key("a")),
    ];
    let answer = peer.txn(always(read)).await.unwrap();
    let values: Vec<String> = answer.responses.iter().filter_map(read_value).collect();
    assert_eq!(values, ["1", "2"]);
}

fn read_value(operation: &ResponseOp) -> Option<String> {
    match &operation.response {
        Some(Response::ResponseRange(range)) => range.kvs.first().map(|kv| text(&kv.value)),
        _ => None,
    }
}

pub async fn no_key_is_written_twice_but_may_be_deleted_twice(peer: Peer) {
    peer.put("a", "1").await;
    for twice in [
        [puts("b", "2"), puts("b", "3")],
        [puts("b", "2"), deletes("a", after("z"))],
        [deletes("a", after("z")), puts("b", "2")],
    ] {
        let refused = peer.txn(always(twice)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("duplicate key"), "{refused}");
    }
    let answer = peer
        .txn(always([deletes("a", vec![]), deletes("a", after("z"))]))
        .await
        .unwrap();
    let counts: Vec<i64> = answer
        .responses
        .iter()
        .map(|operation| match &operation.response {
            Some(Response::ResponseDeleteRange(deleted)) => deleted.deleted,
            _ => -1,
        })
        .collect();
    assert_eq!(counts, [1, 0]);
}

pub async fn spans_are_compared_as_a_whole(peer: Peer) {
    peer.put("a1", "x").await;
    let last = peer.put("a2", "x").await;
    let holds = |result, with| {
        let request = TxnRequest {
            compare: vec![compare("a", after("a"), result, with)],
            ..TxnRequest::default()
        };
        async { peer.txn(request).await.unwrap().succeeded }
    };
    assert!(holds(CompareResult::Equal, TargetUnion::Value("x".into())).await);
    assert!(!holds(CompareResult::Equal, TargetUnion::ModRevision(last)).await);
    assert!(holds(CompareResult::Less, TargetUnion::ModRevision(last + 1)).await);
    let absent = |with| TxnRequest {
        compare: vec![compare("n", after("n"), CompareResult::Equal, with)],
        ..TxnRequest::default()
    };
    assert!(
        peer.txn(absent(TargetUnion::CreateRevision(0)))
            .await
            .unwrap()
            .succeeded
    );
    assert!(!peer.txn(absent(TargetUnion::Value(vec![]))).await.unwrap().succeeded);
}

pub async fn transactions_inside_a_transaction_are_decided_from_its_beginning(peer: Peer) {
    let is_absent = || compare("a", vec![], CompareResult::Equal, TargetUnion::Version(0));
    let nested = TxnRequest {
        compare: vec![is_absent()],
        success: operations([puts("b", "absent")]),
        failure: operations([puts("b", "present")]),
    };
    let answer = peer
        .txn(always([puts("a", "1"), Request::RequestTxn(nested)]))
        .await
        .unwrap();
    match &answer.responses[1].response {
        Some(Response::ResponseTxn(nested)) => assert!(nested.succeeded && nested.responses.len() == 1),
        other => panic!("{other:?}"),
    }
    let read = peer.range(from("b")).await.unwrap();
    assert_eq!(text(&read.kvs[0].value), "absent");
    assert_eq!(read.kvs[0].mod_revision, answer.header.unwrap().revision);
}

pub async fn a_watch_may_begin_in_the_future_and_leave_out_kinds_of_events(peer: Peer) {
    let revision = peer.put("a", "1").await;
    let mut watching = peer
        .watch(WatchCreateRequest {
            key: "a".into(),
            start_revision: revision + 2,
            ..WatchCreateRequest::default()
        })
        .await;
    assert!(watching.next().await.created);
    peer.put("a", "2").await;
    peer.put("a", "3").await;
    assert_eq!(watching.events().await, ["+a 3"]);

    let mut deletions = peer
        .watch(WatchCreateRequest {
            key: "a".into(),
            filters: vec![FilterType::Noput as i32],
            ..WatchCreateRequest::default()
        })
        .await;
    assert!(deletions.next().await.created);
    peer.put("a", "4").await;
    peer.txn(always([deletes("a", vec![])])).await.unwrap();
    assert_eq!(deletions.events().await, ["-a "]);
}

pub async fn numbers_of_watches_do_not_collide(peer: Peer) {
    let numbered = |watch_id| WatchCreateRequest {
        key: "a".into(),
        watch_id,
        ..WatchCreateRequest::default()
    };
    let mut watching = peer.watch(numbered(1)).await;
    assert_eq!(watching.next().await.watch_id, 1);
    let mut given = Vec::new();
    for _ in 0..2 {
        watching.create(numbered(0)).await;
        let created = watching.next().await;
        assert!(created.created && !created.canceled, "{created:?}");
        given.push(created.watch_id);
    }
    assert!(given[0] != given[1] && !given.contains(&1), "{given:?}");
    watching.create(numbered(1)).await;
    let refused = watching.next().await;
    assert!(refused.canceled && refused.watch_id == -1, "{refused:?}");
}

pub async fn a_watch_that_is_too_late_is_told_where_to_begin(peer: Peer) {
    peer.put("a", "1").await;
    let second = peer.put("a", "2").await;
    let compaction = CompactionRequest { revision: second };
    peer.kv().compact(compaction).await.unwrap();
    let mut start_revision = 1;
    for _ in 0..2 {
        let mut watching = peer
            .watch(WatchCreateRequest {
                key: "a".into(),
                start_revision,
                ..WatchCreateRequest::default()
            })
            .await;
        assert!(watching.next().await.created);
        if start_revision == 1 {
            let canceled = watching.next().await;
            assert!(canceled.canceled && canceled.compact_revision >= second, "{canceled:?}");
            start_revision = canceled.compact_revision;
        } else {
            peer.put("a", "3").await;
            while watching.events().await.last().is_none_or(|last| last != "+a 3") {}
        }
    }
}

pub async fn a_lease_takes_its_keys_with_it(peer: Peer) {
    let mut leases = LeaseClient::new(peer.channel.clone());
    let grant = LeaseGrantRequest { ttl: 600, id: 7 };
    assert_eq!(leases.lease_grant(grant).await.unwrap().into_inner().id, 7);
    let leased = |key: &str| PutRequest {
        lease: 7,
        ..put(key, "x")
    };
    for key in ["a", "b", "c"] {
        peer.kv().put(leased(key)).await.unwrap();
    }
    peer.put("c", "without").await;
    let has_lease = |key: &str| TxnRequest {
        compare: vec![compare(key, vec![], CompareResult::Equal, TargetUnion::Lease(7))],
        ..TxnRequest::default()
    };
    assert!(peer.txn(has_lease("a")).await.unwrap().succeeded);
    assert!(!peer.txn(has_lease("c")).await.unwrap().succeeded);
    assert_eq!(peer.range(key("b")).await.unwrap().kvs[0].lease, 7);

    let ask = LeaseTimeToLiveRequest { id: 7, keys: true };
    let told = leases.lease_time_to_live(ask).await.unwrap().into_inner();
    assert!(told.granted_ttl == 600 && (590..=600).contains(&told.ttl), "{told:?}");
    let mut held: Vec<String> = told.keys.iter().map(|key| text(key)).collect();
    held.sort_unstable();
    assert_eq!(held, ["a", "b"]);
    let listed = leases.lease_leases(LeaseLeasesRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.leases.iter().map(|lease| lease.id).collect::<Vec<_>>(), [7]);

    let mut watching = peer
        .watch(WatchCreateRequest {
            key: "a".into(),
            range_end: after("c"),
            ..WatchCreateRequest::default()
        })
        .await;
    assert!(watching.next().await.created);
    leases.lease_revoke(LeaseRevokeRequest { id: 7 }).await.unwrap();
    assert_eq!(watching.events().await, ["-a ", "-b "]);
    assert_eq!(keys(&peer.range(from("c")).await.unwrap()), ["c"]);

    let told = leases.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!(told.ttl, -1);
    let refused = leases.lease_revoke(LeaseRevokeRequest { id: 7 }).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let refused = peer.kv().put(leased("a")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

pub async fn a_lease_lives_as_long_as_it_is_kept_alive(peer: Peer) {
    const SECONDS: i64 = 8;
    let mut leases = LeaseClient::new(peer.channel.clone());
    let grant = LeaseGrantRequest { ttl: SECONDS, id: 7 };
    leases.lease_grant(grant).await.unwrap();
    let leased = PutRequest {
        lease: 7,
        ..put("a", "x")
    };
    let written = peer
        .kv()
        .put(leased)
        .await
        .unwrap()
        .into_inner()
        .header
        .unwrap()
        .revision;
    let mut watching = peer
        .watch(WatchCreateRequest {
            key: "a".into(),
            start_revision: written + 1,
            ..WatchCreateRequest::default()
        })
        .await;
    assert!(watching.next().await.created);

    // As with watches, etcd does not answer before there is a request.
    let (ask, mut queue) = mpsc::channel(1);
    ask.send(LeaseKeepAliveRequest { id: 7 }).await.unwrap();
    let outgoing = futures_util::stream::poll_fn(move |context| queue.poll_recv(context));
    let mut answers = leases.lease_keep_alive(outgoing).await.unwrap().into_inner();
    // Longer than the lease would live by itself.
    for _ in 0..6 {
        let told = answers.message().await.unwrap().unwrap();
        assert_eq!((told.id, told.ttl), (7, SECONDS));
        assert_eq!(told.header.unwrap().revision, written, "nothing is written");
        sleep(Duration::from_secs(2)).await;
        ask.send(LeaseKeepAliveRequest { id: 7 }).await.unwrap();
    }
    assert_eq!(answers.message().await.unwrap().unwrap().ttl, SECONDS);
    let held = peer.range(key("a")).await.unwrap();
    assert_eq!((held.kvs[0].mod_revision, held.kvs[0].lease), (written, 7));
    let ask_time = LeaseTimeToLiveRequest { id: 7, keys: true };
    let told = leases.lease_time_to_live(ask_time).await.unwrap().into_inner();
    assert!((1..=SECONDS).contains(&told.ttl) && told.keys.len() == 1, "{told:?}");

    assert_eq!(watching.events().await, ["-a "]);
    for id in [7, 99] {
        ask.send(LeaseKeepAliveRequest { id }).await.unwrap();
        let told = answers.message().await.unwrap().unwrap();
        assert_eq!(
            (told.id, told.ttl),
            (id, 0),
            "what has ended, or never was, has no time left"
        );
    }
    drop(ask);
    assert!(answers.message().await.unwrap().is_none());
}

/// Only of ours: a real etcd is a process that is told to stop by a signal.
#[tokio::test]
async fn a_server_stops_although_somebody_watches() {
    let world = engines::embedded().await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    let (endpoint, serving) = engines::serve(world.store.clone(), stopped).await;
    let peer = Peer {
        channel: connect(&endpoint).await,
        _keep: Box::new(world),
    };
    let mut watching = peer
        .watch(WatchCreateRequest {
            key: "a".into(),
            ..WatchCreateRequest::default()
        })
        .await;
    assert!(watching.next().await.created);
    stop.send(()).unwrap();
    timeout(PATIENCE, serving)
        .await
        .expect("it does not stop")
        .unwrap()
        .unwrap();
}
