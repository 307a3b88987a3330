//! Whom events reach, and what a watcher may say about how far it has come.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use store::{Event, Revision, Store, Transaction, Write};

use super::{Follower, Read, Ring, Topic};

const PREFIX: &str = "/registry/pods/";

/// A ring that is fed from a store, a commit at a time.
struct Fed {
    store: Arc<dyn Store>,
    ring: Arc<Ring>,
    at: Revision,
}

impl Fed {
    fn new() -> Fed {
        Fed {
            store: store::memory::open(),
            ring: Arc::new(Ring::new(0, api::kinds::pod::POD.indexed_field)),
            at: 0,
        }
    }

    async fn put(&mut self, pods: &[(&str, &str)]) -> Revision {
        let write = |(name, node): &(&str, &str)| Write::Put {
            key: format!("{PREFIX}{name}").into(),
            value: Bytes::from(format!("{{\"spec\":{{\"nodeName\":\"{node}\"}}}}")),
            ttl: None,
        };
        self.commit(pods.iter().map(write).collect()).await
    }

    async fn commit(&mut self, writes: Vec<Write>) -> Revision {
        let compares = Vec::new();
        self.store
            .commit(Transaction { compares, writes })
            .await
            .expect("a commit");
        let mut events = self.store.watch(self.at).await.expect("a watch");
        let batch = events.next().await.expect("events");
        // A revision may reach a ring in several runs.
        for event in batch.events {
            self.ring.append(std::iter::once(event));
        }
        self.ring.advance(batch.complete_to);
        self.at = batch.complete_to;
        self.at
    }

    fn follow(&self, topic: Topic) -> Follower {
        Follower::new(self.ring.clone(), topic, self.at)
    }
}

fn object(name: &str) -> Topic {
    Topic::KeyPrefix(format!("{PREFIX}{name}").into())
}

fn keys(read: Option<Read>) -> Vec<String> {
    match read {
        None => Vec::new(),
        Some(Read::Behind) => vec!["behind".to_owned()],
        Some(Read::Changes(changes)) => {
            let key = |event: &Event| event.key[PREFIX.len()..].to_owned();
            changes.iter().map(|change| key(&change.event)).collect()
        }
    }
}

#[tokio::test]
async fn an_event_reaches_those_whom_it_may_concern() {
    let mut fed = Fed::new();
    let mut one = fed.follow(object("a/one"));
    let mut other = fed.follow(object("a/other"));
    let mut namespace = fed.follow(object("a/"));
    let mut node = fed.follow(Topic::Field("n1".into()));
    let mut all = fed.follow(Topic::Everything);
    // The first look scans the ring; from then on everyone only hears of their own.
    for follower in [&mut one, &mut other, &mut namespace, &mut node, &mut all] {
        assert_eq!(keys(Some(follower.read())), Vec::<String>::new());
    }
    fed.put(&[("a/one", "n1")]).await;
    fed.put(&[("b/one", "n2")]).await;
    assert_eq!(keys(one.next().now_or_never()), ["a/one"]);
    assert_eq!(keys(other.next().now_or_never()), Vec::<String>::new());
    assert_eq!(keys(namespace.next().now_or_never()), ["a/one"]);
    assert_eq!(keys(node.next().now_or_never()), ["a/one"]);
    assert_eq!(keys(all.next().now_or_never()), ["a/one", "b/one"]);
}

#[tokio::test]
async fn who_loses_an_object_and_who_gains_it_both_hear() {
    let mut fed = Fed::new();
    fed.put(&[("a/one", "n1")]).await;
    let (mut loses, mut gains) = (
        fed.follow(Topic::Field("n1".into())),
        fed.follow(Topic::Field("n2".into())),
    );
    let _ = (loses.read(), gains.read());
    fed.put(&[("a/one", "n2")]).await;
    assert_eq!(keys(loses.next().now_or_never()), ["a/one"]);
    assert_eq!(keys(gains.next().now_or_never()), ["a/one"]);
    let key = format!("{PREFIX}a/one").into();
    fed.commit(vec![Write::Delete { key }]).await;
    assert_eq!(keys(loses.next().now_or_never()), Vec::<String>::new());
    assert_eq!(keys(gains.next().now_or_never()), ["a/one"]);
}

#[tokio::test]
async fn a_watcher_that_hears_nothing_still_comes_forward_and_never_falls_behind() {
    let mut fed = Fed::new();
    let mut quiet = fed.follow(object("a/quiet"));
    let _ = quiet.read();
    for number in 0..super::ring::CAPACITY + 10 {
        fed.put(&[(&format!("a/{number}"), "n1")]).await;
    }
    assert_eq!(keys(Some(quiet.read())), Vec::<String>::new());
    assert_eq!(
        quiet.at(),
        fed.at,
        "a bookmark tells of what did not concern the watcher"
    );
    let last = fed.put(&[("a/quiet", "n1")]).await;
    assert_eq!(keys(quiet.next().now_or_never()), ["a/quiet"]);
    assert_eq!(quiet.at(), last);
}

#[tokio::test]
async fn a_watcher_that_does_not_read_its_own_events_in_time_is_behind() {
    let mut fed = Fed::new();
    let (mut slow, mut everything) = (fed.follow(object("a/one")), fed.follow(Topic::Everything));
    let _ = (slow.read(), everything.read());
    fed.put(&[("a/one", "n1")]).await;
    for _ in 0..super::ring::CAPACITY {
        fed.put(&[("a/two", "n1")]).await;
    }
    assert_eq!(keys(slow.next().now_or_never()), ["behind"]);
    assert_eq!(keys(everything.next().now_or_never()), ["behind"]);
}

#[tokio::test]
async fn events_before_the_watch_are_found_and_none_comes_twice() {
    let mut fed = Fed::new();
    let from = fed.put(&[("a/one", "n1")]).await;
    fed.put(&[("a/one", "n1"), ("a/two", "n1"), ("b/one", "n1")]).await;
    let mut late = Follower::new(fed.ring.clone(), object("a/"), from);
    fed.put(&[("a/two", "n1")]).await;
    // The scan may bring more than the topic; the filter leaves it out.
    assert_eq!(keys(late.next().now_or_never()), ["a/one", "a/two", "b/one", "a/two"]);
    assert_eq!(keys(late.next().now_or_never()), Vec::<String>::new());
    fed.put(&[("a/one", "n1"), ("a/two", "n1")]).await;
    assert_eq!(keys(late.next().now_or_never()), ["a/one", "a/two"]);
    assert_eq!(keys(late.next().now_or_never()), Vec::<String>::new());
}

#[tokio::test]
async fn a_sleeping_watcher_is_woken_by_its_own_events_only() {
    let mut fed = Fed::new();
    let mut follower = fed.follow(object("a/one"));
    let woken = tokio::spawn(async move { keys(Some(follower.next().await)) });
    tokio::task::yield_now().await;
    fed.put(&[("a/two", "n1")]).await;
    fed.put(&[("a/one", "n1")]).await;
    assert_eq!(woken.await.expect("a follower"), ["a/one"]);
}

#[tokio::test]
async fn large_objects_leave_the_ring_by_their_bytes() {
    let mut fed = Fed::new();
    let from = fed.at;
    let huge = "n".repeat(6 << 20);
    for name in ["a/1", "a/2", "a/3"] {
        fed.put(&[(name, &huge)]).await;
    }
    let mut late = Follower::new(fed.ring.clone(), Topic::Everything, from);
    assert!(late.is_behind());
    late.restart(fed.at - 2);
    assert_eq!(keys(Some(late.read())), ["a/2", "a/3"]);
}
