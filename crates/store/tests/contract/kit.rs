//! Short words for what the cases say often.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::{Compare, Entry, Event, EventStream, Outcome, Revision, Snapshot, Store, StoreError, Transaction, Write};

/// Long enough for a slow machine, short enough to notice a hang.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn put(key: &str, value: impl Into<Bytes>) -> Write {
    Write::Put {
        key: key.into(),
        value: value.into(),
        ttl: None,
    }
}

pub fn put_for(key: &str, value: impl Into<Bytes>, ttl: Duration) -> Write {
    Write::Put {
        key: key.into(),
        value: value.into(),
        ttl: Some(ttl),
    }
}

pub fn delete(key: &str) -> Write {
    Write::Delete { key: key.into() }
}

pub fn absent(key: &str) -> Compare {
    Compare::Absent { key: key.into() }
}

pub fn unchanged(key: &str, mod_revision: Revision) -> Compare {
    Compare::Unchanged {
        key: key.into(),
        mod_revision,
    }
}

pub fn transaction(compares: impl Into<Vec<Compare>>, writes: impl Into<Vec<Write>>) -> Transaction {
    Transaction {
        compares: compares.into(),
        writes: writes.into(),
    }
}

/// Commits writes that must succeed.
pub async fn write(store: &Arc<dyn Store>, writes: impl Into<Vec<Write>>) -> Revision {
    match store.commit(transaction([], writes)).await {
        Ok(Outcome::Committed { revision }) => revision,
        other => panic!("the write was not committed: {other:?}"),
    }
}

/// Commits a transaction whose compares must fail.
pub async fn conflict(store: &Arc<dyn Store>, transaction: Transaction) -> Vec<Option<Arc<Entry>>> {
    match store.commit(transaction).await {
        Ok(Outcome::Conflict { current }) => current,
        other => panic!("expected a conflict: {other:?}"),
    }
}

pub fn value(snapshot: &dyn Snapshot, key: &str) -> Option<String> {
    snapshot
        .get(key)
        .map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
}

pub fn keys(snapshot: &dyn Snapshot, prefix: &str, from: &str) -> Vec<String> {
    snapshot
        .range(prefix, from)
        .map(|entry| entry.key.to_string())
        .collect()
}

/// Reads until the stream is complete up to `revision`.
pub async fn read_to(stream: &mut Box<dyn EventStream>, revision: Revision) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let batch = tokio::time::timeout(PATIENCE, stream.next())
            .await
            .expect("the watch hangs")
            .expect("watch");
        assert!(
            events
                .last()
                .is_none_or(|last: &Event| batch.events.first().is_none_or(|first| first.revision > last.revision))
        );
        events.extend(batch.events);
        if batch.complete_to >= revision {
            return events;
        }
    }
}

/// An event as a line: `+` created, `~` changed, `-` deleted, with the value before and after.
pub fn line(event: &Event) -> String {
    let text = |entry: &Arc<Entry>| String::from_utf8_lossy(&entry.value).into_owned();
    match (&event.previous, &event.current) {
        (None, Some(current)) => format!("+{} {}", event.key, text(current)),
        (Some(previous), Some(current)) => format!("~{} {}>{}", event.key, text(previous), text(current)),
        (Some(previous), None) => format!("-{} {}", event.key, text(previous)),
        (None, None) => panic!("an event without before and after: {event:?}"),
    }
}

pub fn lines(events: &[Event]) -> Vec<String> {
    events.iter().map(line).collect()
}

/// The error of a call that must fail.
pub fn refused<T>(result: Result<T, StoreError>) -> StoreError {
    match result {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => error,
    }
}
