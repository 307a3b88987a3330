//! What only an etcd can do to its clients: go away, be written by others, forget.

use std::sync::Arc;
use std::time::Duration;

use store::etcd::{EtcdOptions, connect};
use store::{Store, StoreError};

use crate::etcd_server::EtcdServer;
use crate::kit::*;

const A: &str = "/registry/pods/default/a";

#[tokio::test]
async fn two_servers_on_one_etcd_see_each_other() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, two) = (server.connect().await, server.connect().await);
    for round in 0..20 {
        let revision = write(&one, [put(A, format!("{round}"))]).await;
        let latest = two.latest().await.unwrap();
        assert!(latest.revision() >= revision);
        assert_eq!(value(&*latest, A), Some(round.to_string()));
        two.watch(revision)
            .await
            .expect("a revision of the other server is no future");
    }
    let start = two.snapshot().revision();
    let mut watch = two.watch(start).await.unwrap();
    let end = write(&one, [delete(A)]).await;
    assert_eq!(lines(&read_to(&mut watch, end).await), [format!("-{A} 19")]);
}

#[tokio::test]
async fn keys_outside_the_prefix_are_neither_seen_nor_waited_for() {
    let Some(server) = EtcdServer::start() else { return };
    let store = server.connect().await;
    let other = connect(EtcdOptions {
        prefix: "/elsewhere".into(),
        ..server.options()
    })
    .await
    .unwrap();
    write(&store, [put(A, "1")]).await;
    let foreign = other.commit(transaction([], [put("/elsewhere/x", "1")])).await.unwrap();
    assert_eq!(
        foreign,
        store::Outcome::Committed {
            revision: other.snapshot().revision()
        }
    );
    let latest = tokio::time::timeout(Duration::from_secs(3), store.latest())
        .await
        .expect("latest hangs")
        .unwrap();
    assert!(latest.revision() >= other.snapshot().revision());
    assert_eq!(keys(&*latest, "", ""), [A]);
    let outside = store.commit(transaction([], [put("/elsewhere/y", "1")])).await;
    assert!(matches!(outside, Err(StoreError::Invalid(_))));
}

#[tokio::test]
async fn the_watch_goes_on_after_etcd_was_away() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = server.connect().await;
    let first = write(&store, [put(A, "1")]).await;
    let mut watch = store.watch(first).await.unwrap();
    server.kill();
    let unreachable = refused(store.commit(transaction([], [put(A, "lost")])).await);
    assert!(
        matches!(unreachable, StoreError::Unavailable(_) | StoreError::Unknown(_)),
        "{unreachable}"
    );
    let unreachable = refused(store.commit(transaction([], [put(A, "lost")])).await);
    assert!(
        matches!(unreachable, StoreError::Unavailable(_)),
        "nothing was sent: {unreachable}"
    );
    assert!(matches!(refused(store.latest().await), StoreError::Unavailable(_)));
    assert_eq!(value(&*store.snapshot(), A).as_deref(), Some("1"), "reads go on");

    server.resume().unwrap();
    let again = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Ok(store::Outcome::Committed { revision }) = store.commit(transaction([], [put(A, "2")])).await {
                return revision;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let again = again.await.expect("etcd was not found again");
    assert_eq!(lines(&read_to(&mut watch, again).await), [format!("~{A} 1>2")]);
}

#[tokio::test]
async fn a_server_that_slept_through_a_compaction_starts_again() {
    let Some(mut server) = EtcdServer::start() else { return };
    let sleeper = server.connect().await;
    let start = write(&sleeper, [put(A, "1")]).await;
    let mut watch = sleeper.watch(start).await.unwrap();
    // While the server is away the sleeper's pauses grow, so that another client is first when it comes back.
    server.kill();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.resume().unwrap();
    let other = server.connect().await;
    let last = write(&other, [put(A, "2"), put("/registry/b", "1")]).await;
    let last = write(&other, [delete(A)]).await.max(last);
    other.compact(last).await.unwrap();

    let latest = tokio::time::timeout(PATIENCE, async {
        loop {
            match sleeper.latest().await {
                Ok(latest) => return latest,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    assert_eq!(
        keys(&*latest.await.expect("the sleeper hangs"), "", ""),
        ["/registry/b"]
    );
    // Whether the sleeper came before or after the compaction: its reader misses nothing without being told.
    match tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("the watch hangs")
    {
        Err(StoreError::Compacted { .. }) => (),
        Ok(batch) => assert_eq!(line(&batch.events[0]), format!("~{A} 1>2")),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_past_from_before_this_process_is_read_from_etcd() {
    let Some(server) = EtcdServer::start() else { return };
    let before = server.connect().await;
    let first = write(&before, [put(A, "1"), put("/registry/b", "1")]).await;
    write(&before, [put(A, "2")]).await;
    let third = write(&before, [delete("/registry/b")]).await;
    before.close().await;

    let store = server.connect().await;
    assert_eq!(
        keys(&*store.snapshot_at(first).await.unwrap(), "", ""),
        ["/registry/b", A]
    );
    let mut watch = store.watch(first).await.unwrap();
    assert_eq!(
        lines(&read_to(&mut watch, third).await),
        [format!("~{A} 1>2"), "-/registry/b 1".into()]
    );
    let last = write(&store, [put(A, "3")]).await;
    assert_eq!(lines(&read_to(&mut watch, last).await), [format!("~{A} 2>3")]);
}

#[tokio::test]
async fn a_large_state_is_loaded_in_pages() {
    let Some(server) = EtcdServer::start() else { return };
    let store = server.connect().await;
    for page in 0..13 {
        let writes: Vec<_> = (0..100)
            .map(|key| put(&format!("/registry/k/{page:02}{key:02}"), "v"))
            .collect();
        write(&store, writes).await;
    }
    let again = server.connect().await;
    assert_eq!(again.snapshot().count("/registry/k/"), 1300);
    assert!(keys(&*again.snapshot(), "", "").is_sorted());
}

#[tokio::test]
async fn etcd_is_compacted_regularly() {
    let Some(server) = EtcdServer::start() else { return };
    let options = EtcdOptions {
        compaction_interval: Some(Duration::from_millis(100)),
        ..server.options()
    };
    let store: Arc<dyn Store> = connect(options).await.unwrap();
    let first = write(&store, [put(A, "1")]).await;
    write(&store, [put(A, "2")]).await;
    let gone = tokio::time::timeout(PATIENCE, async {
        loop {
            let other = server.connect().await;
            if let Err(StoreError::Compacted { .. }) = other.snapshot_at(first).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    gone.await.expect("nothing was compacted");
}

#[tokio::test]
async fn a_member_that_is_away_is_skipped() {
    let Some(server) = EtcdServer::start() else { return };
    let options = server.options();
    let endpoints = vec![
        "http://127.0.0.1:1".into(),
        server.endpoint(),
        "http://127.0.0.1:2".into(),
    ];
    let store: Arc<dyn Store> = connect(EtcdOptions { endpoints, ..options }).await.unwrap();
    write(&store, [put(A, "1")]).await;
    assert_eq!(value(&*store.latest().await.unwrap(), A).as_deref(), Some("1"));
}

#[tokio::test]
async fn etcd_is_reached_over_tls_with_a_client_certificate() {
    let Some(server) = EtcdServer::start_secure() else {
        return;
    };
    let store = server.connect().await;
    write(&store, [put(A, "1")]).await;
    assert_eq!(value(&*store.latest().await.unwrap(), A).as_deref(), Some("1"));

    let none = EtcdOptions {
        tls: None,
        ..server.options()
    };
    assert!(matches!(refused(connect(none).await), StoreError::Invalid(_)));
}
