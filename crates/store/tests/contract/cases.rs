//! What every engine does. Revisions are compared with each other, never with numbers: an etcd may be shared.

use std::time::{Duration, Instant};

use store::{Outcome, StoreError};

use crate::engines::World;
use crate::kit::*;

const A: &str = "/registry/pods/default/a";
const B: &str = "/registry/pods/default/b";
const C: &str = "/registry/services/default/c";

pub async fn a_write_is_visible_as_soon_as_it_is_acknowledged(World { store, .. }: World) {
    for number in 0..20 {
        let revision = write(&store, [put(A, format!("{number}"))]).await;
        let snapshot = store.snapshot();
        assert!(snapshot.revision() >= revision);
        assert_eq!(value(&*snapshot, A), Some(number.to_string()));
        assert_eq!(snapshot.get(A).unwrap().mod_revision, revision);
    }
    let latest = store.latest().await.unwrap();
    assert_eq!(value(&*latest, A).as_deref(), Some("19"));
    assert_eq!(value(&*latest, B), None);
}

pub async fn a_missing_key_can_be_created_once(World { store, .. }: World) {
    let create = || transaction([absent(A)], [put(A, "first")]);
    assert!(matches!(store.commit(create()).await, Ok(Outcome::Committed { .. })));
    let current = conflict(&store, create()).await;
    assert_eq!(current, vec![store.snapshot().get(A)]);
    write(&store, [delete(A)]).await;
    assert!(matches!(store.commit(create()).await, Ok(Outcome::Committed { .. })));
}

pub async fn a_write_on_an_outdated_revision_is_refused_with_the_current_state(World { store, .. }: World) {
    let first = write(&store, [put(A, "1")]).await;
    let second = store.commit(transaction([unchanged(A, first)], [put(A, "2")])).await;
    assert!(matches!(second, Ok(Outcome::Committed { revision }) if revision > first));
    let current = conflict(&store, transaction([unchanged(A, first), absent(B)], [put(A, "3")])).await;
    assert_eq!(current, vec![store.snapshot().get(A), None]);
    assert_eq!(value(&*store.snapshot(), A).as_deref(), Some("2"));

    write(&store, [delete(A)]).await;
    let current = conflict(&store, transaction([unchanged(A, first)], [put(A, "4")])).await;
    assert_eq!(current, vec![None], "a deleted key is not unchanged");
}

pub async fn all_writes_of_a_transaction_share_one_revision(World { store, .. }: World) {
    let before = write(&store, [put(B, "old")]).await;
    let mut watch = store.watch(before).await.unwrap();
    let revision = write(&store, [put(A, "a"), delete(B), put(C, "c")]).await;
    let snapshot = store.snapshot();
    assert_eq!(snapshot.get(A).unwrap().mod_revision, revision);
    assert_eq!(snapshot.get(C).unwrap().mod_revision, revision);
    assert_eq!(snapshot.get(B), None);

    let batch = watch.next().await.unwrap();
    let mut seen = lines(&batch.events);
    seen.sort();
    assert_eq!(seen, [format!("+{A} a"), format!("+{C} c"), format!("-{B} old")]);
    assert!(batch.events.iter().all(|event| event.revision == revision));
}

pub async fn one_failed_compare_keeps_every_write_out(World { store, .. }: World) {
    let revision = write(&store, [put(A, "a")]).await;
    let current = conflict(
        &store,
        transaction([unchanged(A, revision), absent(B), absent(A)], [put(B, "b"), delete(A)]),
    )
    .await;
    let a = store.snapshot().get(A);
    assert_eq!(current, vec![a.clone(), None, a]);
    assert_eq!(keys(&*store.latest().await.unwrap(), "/registry/", ""), [A]);
}

pub async fn writes_that_change_nothing_make_no_revision(World { store, .. }: World) {
    let before = write(&store, [put(A, "a")]).await;
    assert_eq!(write(&store, []).await, before);
    assert_eq!(write(&store, [delete(B)]).await, before);
    let after = write(&store, [put(A, "a")]).await;
    assert!(after > before, "the same value again is a write");
    assert_eq!(
        store.snapshot_at(before).await.unwrap().get(A).unwrap().mod_revision,
        before
    );
}

pub async fn a_key_cannot_be_written_twice_in_one_transaction(World { store, .. }: World) {
    let twice = transaction([], [put(A, "1"), put(A, "2")]);
    assert!(matches!(store.commit(twice).await, Err(StoreError::Invalid(_))));
    let twice = transaction([], [put(A, "1"), put(B, "2"), delete(A)]);
    assert!(matches!(store.commit(twice).await, Err(StoreError::Invalid(_))));
    assert!(matches!(
        store.commit(transaction([], [put("", "1")])).await,
        Err(StoreError::Invalid(_))
    ));
    assert_eq!(keys(&*store.latest().await.unwrap(), "", ""), Vec::<String>::new());
}

pub async fn the_create_revision_lives_from_create_to_delete(World { store, .. }: World) {
    let created = write(&store, [put(A, "1")]).await;
    let changed = write(&store, [put(A, "2")]).await;
    let entry = store.snapshot().get(A).unwrap();
    assert_eq!((entry.create_revision, entry.mod_revision), (created, changed));
    write(&store, [delete(A)]).await;
    let again = write(&store, [put(A, "3")]).await;
    let entry = store.snapshot().get(A).unwrap();
    assert_eq!((entry.create_revision, entry.mod_revision), (again, again));
}

pub async fn ranges_are_ordered_and_end_with_their_prefix(World { store, .. }: World) {
    let all = [
        "/registry/pods/a",
        "/registry/pods/b",
        "/registry/pods/b/c",
        "/registry/pods0",
        "/registry/podsets/a",
    ];
    for key in all.iter().rev() {
        write(&store, [put(key, *key)]).await;
    }
    let snapshot = store.snapshot();
    assert_eq!(keys(&*snapshot, "/registry/", ""), all);
    assert_eq!(keys(&*snapshot, "/registry/pods/", "/registry/pods/"), all[..3]);
    assert_eq!(keys(&*snapshot, "/registry/pods/", "/registry/pods/a\0"), all[1..3]);
    assert_eq!(
        keys(&*snapshot, "/registry/pods/", "/registry/podsets/"),
        Vec::<String>::new()
    );
    assert_eq!(keys(&*snapshot, "/registry/pods/b/c/d", ""), Vec::<String>::new());
    assert_eq!(snapshot.count("/registry/pods/"), 3);
}

pub async fn a_snapshot_stays_as_it_was(World { store, .. }: World) {
    let revision = write(&store, [put(A, "old"), put(B, "old")]).await;
    let snapshot = store.snapshot();
    write(&store, [put(A, "new"), delete(B), put(C, "new")]).await;
    assert_eq!(snapshot.revision(), revision);
    assert_eq!(keys(&*snapshot, "/registry/", ""), [A, B]);
    assert_eq!(value(&*snapshot, A).as_deref(), Some("old"));
}

pub async fn older_revisions_can_be_read(World { store, .. }: World) {
    let mut expected = Vec::new();
    for round in 0..30 {
        let key = format!("/registry/pods/{}", round % 7);
        let change = if round % 5 == 4 {
            delete(&key)
        } else {
            put(&key, format!("{round}"))
        };
        let revision = write(&store, [change]).await;
        expected.push((revision, store.snapshot()));
    }
    for (revision, then) in expected.iter().rev() {
        let read = store.snapshot_at(*revision).await.unwrap();
        assert_eq!(read.revision(), *revision);
        let entries = |snapshot: &dyn store::Snapshot| snapshot.range("", "").cloned().collect::<Vec<_>>();
        assert_eq!(entries(&*read), entries(&**then), "at revision {revision}");
    }
}

pub async fn a_watch_delivers_every_event_once_and_in_order(World { store, .. }: World) {
    let start = write(&store, [put(A, "0")]).await;
    write(&store, [put(A, "1")]).await;
    let middle = write(&store, [put(B, "2")]).await;
    write(&store, [delete(A)]).await;
    let end = write(&store, [put(A, "3")]).await;

    let mut watch = store.watch(start).await.unwrap();
    let events = read_to(&mut watch, end).await;
    assert_eq!(
        lines(&events),
        [
            format!("~{A} 0>1"),
            format!("+{B} 2"),
            format!("-{A} 1"),
            format!("+{A} 3")
        ]
    );
    assert!(
        events
            .iter()
            .filter_map(|event| event.current.as_ref().map(|now| (now, event)))
            .all(|(now, event)| { now.mod_revision == event.revision && now.key == event.key })
    );

    let mut watch = store.watch(middle).await.unwrap();
    assert_eq!(
        lines(&read_to(&mut watch, end).await),
        [format!("-{A} 1"), format!("+{A} 3")]
    );
}

pub async fn a_watch_waits_for_the_next_event(World { store, .. }: World) {
    let revision = write(&store, [put(A, "0")]).await;
    let mut watch = store.watch(revision).await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(100), watch.next())
            .await
            .is_err(),
        "nothing has happened yet"
    );
    let writer = store.clone();
    let next = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        write(&writer, [put(A, "1")]).await
    });
    let batch = tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("the watch hangs")
        .unwrap();
    assert_eq!(lines(&batch.events), [format!("~{A} 0>1")]);
    assert_eq!(batch.complete_to, next.await.unwrap());
    let now = store.snapshot();
    assert!(
        now.revision() >= batch.complete_to,
        "an event is never ahead of the snapshot"
    );
}

pub async fn a_slow_watch_catches_up(World { store, .. }: World) {
    let start = store.snapshot().revision();
    let mut watch = store.watch(start).await.unwrap();
    let mut end = start;
    for round in 0..60 {
        let writes: Vec<_> = (0..50)
            .map(|key| put(&format!("/registry/pods/{key:02}"), format!("{round}")))
            .collect();
        end = write(&store, writes).await;
    }
    let events = read_to(&mut watch, end).await;
    assert_eq!(events.len(), 3000);
    assert!(events.windows(2).all(|pair| pair[0].revision <= pair[1].revision));
    let last: Vec<_> = events
        .iter()
        .filter(|event| &*event.key == "/registry/pods/07")
        .map(line)
        .collect();
    assert_eq!(last.len(), 60);
    assert_eq!(last[59], "~/registry/pods/07 58>59");
}

pub async fn compaction_forgets_history_but_no_state(World { store, .. }: World) {
    let old = write(&store, [put(A, "1"), put(B, "b")]).await;
    let kept = write(&store, [put(A, "2")]).await;
    write(&store, [delete(B)]).await;
    let last = write(&store, [put(A, "3")]).await;
    let mut behind = store.watch(old).await.unwrap();
    store.compact(kept).await.unwrap();
    store.compact(kept).await.expect("compacting again is no error");

    assert!(matches!(
        refused(store.snapshot_at(old).await),
        StoreError::Compacted { .. }
    ));
    assert!(matches!(refused(store.watch(old).await), StoreError::Compacted { .. }));
    assert_eq!(keys(&*store.snapshot_at(kept).await.unwrap(), "/registry/", ""), [A, B]);
    let mut watch = store.watch(kept).await.unwrap();
    assert_eq!(
        lines(&read_to(&mut watch, last).await),
        [format!("-{B} b"), format!("~{A} 2>3")]
    );
    assert_eq!(value(&*store.latest().await.unwrap(), A).as_deref(), Some("3"));

    match tokio::time::timeout(PATIENCE, behind.next())
        .await
        .expect("the watch hangs")
    {
        Err(StoreError::Compacted { .. }) => (),
        Ok(batch) => assert_eq!(
            batch.events[0].revision, kept,
            "a watch that goes on has missed nothing"
        ),
        Err(other) => panic!("{other}"),
    }
}

pub async fn the_future_cannot_be_read(World { store, .. }: World) {
    let now = write(&store, [put(A, "1")]).await;
    assert!(matches!(
        refused(store.snapshot_at(now + 1000).await),
        StoreError::Future { .. }
    ));
    assert!(matches!(
        refused(store.watch(now + 1000).await),
        StoreError::Future { .. }
    ));
    assert!(matches!(
        refused(store.compact(now + 1000).await),
        StoreError::Future { .. }
    ));
}

pub async fn keys_expire_after_their_time_to_live(World { store, .. }: World) {
    let ttl = Duration::from_secs(2);
    let start = Instant::now();
    let revision = write(&store, [put_for(A, "short", ttl), put(B, "long")]).await;
    let mut watch = store.watch(revision).await.unwrap();
    let batch = tokio::time::timeout(PATIENCE, async {
        loop {
            let batch = watch.next().await.unwrap();
            if !batch.events.is_empty() {
                return batch;
            }
        }
    });
    let batch = batch.await.expect("the key never expired");
    assert!(
        start.elapsed() >= ttl - Duration::from_millis(100),
        "expired after {:?}",
        start.elapsed()
    );
    assert_eq!(lines(&batch.events), [format!("-{A} short")]);
    assert_eq!(keys(&*store.snapshot(), "/registry/", ""), [B]);
}

pub async fn a_later_write_replaces_the_time_to_live(World { store, .. }: World) {
    write(
        &store,
        [
            put_for(A, "1", Duration::from_secs(1)),
            put_for(B, "1", Duration::from_secs(1)),
        ],
    )
    .await;
    write(&store, [put(A, "2"), put_for(B, "2", Duration::from_secs(3600))]).await;
    let witness = write(&store, [put_for(C, "1", Duration::from_secs(2))]).await;
    let mut watch = store.watch(witness).await.unwrap();
    let gone = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(event) = watch.next().await.unwrap().events.first() {
                return line(event);
            }
        }
    });
    assert_eq!(gone.await.expect("the key never expired"), format!("-{C} 1"));
    assert_eq!(keys(&*store.snapshot(), "/registry/", ""), [A, B]);
}

pub async fn concurrent_increments_are_all_counted(World { store, .. }: World) {
    const WRITERS: usize = 8;
    const EACH: usize = 20;
    write(&store, [put(A, "0")]).await;
    let writers = (0..WRITERS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..EACH {
                loop {
                    let now = store.snapshot().get(A).unwrap();
                    let count: usize = String::from_utf8_lossy(&now.value).parse().unwrap();
                    let add = transaction([unchanged(A, now.mod_revision)], [put(A, format!("{}", count + 1))]);
                    if let Outcome::Committed { .. } = store.commit(add).await.unwrap() {
                        break;
                    }
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(value(&*store.snapshot(), A), Some((WRITERS * EACH).to_string()));
}

pub async fn large_values_and_odd_keys_survive(World { store, .. }: World) {
    let odd = "/registry/odd/ключ with space\"%\u{1f6a2}";
    let large: Vec<u8> = (0..1_000_000u32).map(|byte| (byte % 251) as u8).collect();
    let revision = write(&store, [put(odd, large.clone()), put(B, "")]).await;
    let mut watch = store.watch(revision - 1).await.unwrap();
    assert_eq!(read_to(&mut watch, revision).await.len(), 2);
    let snapshot = store.latest().await.unwrap();
    assert!(snapshot.get(odd).unwrap().value == large);
    assert_eq!(value(&*snapshot, B).as_deref(), Some(""));
}

pub async fn a_closed_store_refuses_everything_and_ends_its_watches(World { store, .. }: World) {
    let revision = write(&store, [put(A, "1")]).await;
    let mut watch = store.watch(revision).await.unwrap();
    let waiting = tokio::spawn(async move { watch.next().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    store.close().await;
    let ended = tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("the watch hangs")
        .unwrap();
    assert!(matches!(refused(ended), StoreError::Unavailable(_)));
    let write = transaction([], [put(A, "2")]);
    assert!(matches!(refused(store.commit(write).await), StoreError::Unavailable(_)));
    assert!(matches!(refused(store.latest().await), StoreError::Unavailable(_)));
    assert!(matches!(
        refused(store.watch(revision).await),
        StoreError::Unavailable(_)
    ));
    assert_eq!(
        value(&*store.snapshot(), A).as_deref(),
        Some("1"),
        "what was read before can still be read"
    );
}
