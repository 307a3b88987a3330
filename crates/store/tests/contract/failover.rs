//! A cluster of which a member stops without its connections being closed, as a stopped process does.

use std::sync::Arc;
use std::time::Duration;

use store::etcd::{EtcdOptions, Identity};
use store::{Store, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::engines::serve;
use crate::kit::*;

const A: &str = "/registry/a";

/// Without fail-over it takes the fifteen seconds of a keep-alive, or the ten of a request; with it about one.
const SOON: Duration = Duration::from_secs(8);

/// A member behind a connection that can be frozen.
struct Member {
    endpoint: String,
    frozen: watch::Sender<bool>,
}

impl Member {
    async fn start(store: Arc<dyn Store>) -> Member {
        let (server, _) = serve(store, std::future::pending()).await;
        let server = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let frozen = watch::Sender::new(false);
        let freeze = frozen.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let upstream = TcpStream::connect(&server).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = upstream.into_split();
                tokio::spawn(pump(from_client, to_server, freeze.clone()));
                tokio::spawn(pump(from_server, to_client, freeze.clone()));
            }
        });
        Member { endpoint, frozen }
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut frozen: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        if frozen.wait_for(|frozen| !frozen).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Writes until a write succeeds; no write but one may fail, and that one only without saying what became of it.
async fn write_through(store: &Arc<dyn Store>, text: &str) {
    let mut failures = 0;
    loop {
        match store.commit(transaction([], [put(A, text.to_owned())])).await {
            Ok(_) => return,
            Err(StoreError::Unknown(_) | StoreError::Unavailable(_)) => failures += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(failures <= 1, "a second write failed");
    }
}

#[tokio::test]
async fn a_member_that_stops_is_left_within_seconds_by_writes_reads_and_the_watch() {
    let backend: Arc<dyn Store> = store::memory::open();
    let members = [
        Member::start(backend.clone()).await,
        Member::start(backend.clone()).await,
        Member::start(backend).await,
    ];
    let endpoints = members.iter().map(|member| member.endpoint.clone()).collect();
    let store: Arc<dyn Store> = store::etcd::connect(EtcdOptions::new(endpoints, Arc::new(Identity)))
        .await
        .unwrap();
    let mut watch = store.watch(store.snapshot().revision()).await.unwrap();
    write_through(&store, "before").await;
    // One of them is in use, whichever it is.
    for (number, member) in members.iter().enumerate() {
        member.frozen.send_replace(true);
        let begun = Instant::now();
        let text = format!("without {number}");
        timeout(SOON, write_through(&store, &text)).await.expect("writes hang");
        let latest = timeout(SOON, store.latest()).await.expect("reads hang").unwrap();
        assert_eq!(value(&*latest, A), Some(text), "after {:?}", begun.elapsed());
        member.frozen.send_replace(false);
    }
    let last = store.snapshot().revision();
    let events = timeout(SOON, read_to(&mut watch, last)).await.expect("the watch hangs");
    assert!(events.len() >= 4, "{}", events.len());
}

#[tokio::test]
async fn a_read_goes_on_by_another_member_when_the_first_stops() {
    let backend: Arc<dyn Store> = store::memory::open();
    let members = [Member::start(backend.clone()).await, Member::start(backend).await];
    let endpoints = members.iter().map(|member| member.endpoint.clone()).collect();
    let store = store::etcd::connect(EtcdOptions::new(endpoints, Arc::new(Identity)))
        .await
        .unwrap();
    for member in &members {
        member.frozen.send_replace(true);
        let latest = timeout(SOON, store.latest()).await.expect("the read hangs");
        assert!(latest.is_ok(), "{:?}", latest.err());
        member.frozen.send_replace(false);
    }
}
