//! The key space at one revision, and how a transaction changes it. Pure: no locks, no clock, no IO.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::{Compare, Entry, Event, Revision, Snapshot, StoreError, Transaction, Write};

/// A persistent map: a clone is one pointer, and changing the clone copies only the nodes on the way to the change.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// Changed only by `insert` and `take`, which keep `bytes` true.
    pub entries: OrdMap<Arc<str>, Arc<Entry>>,
    pub revision: Revision,
    /// Keys and values together.
    pub bytes: u64,
}

/// What a transaction does to a state.
pub(crate) enum Effect {
    Changed(Vec<Event>),
    Unchanged,
    Conflict(Vec<Option<Arc<Entry>>>),
}

impl State {
    /// Carries out `transaction` at the next revision if its compares hold. `now_ms` turns each `ttl` into a point in time.
    pub fn transact(&mut self, transaction: &Transaction, now_ms: u64) -> Effect {
        if !transaction.compares.iter().all(|compare| self.holds(compare)) {
            let current = transaction
                .compares
                .iter()
                .map(|compare| self.entries.get(compare.key()).cloned());
            return Effect::Conflict(current.collect());
        }
        let revision = self.revision + 1;
        let events: Vec<Event> = transaction
            .writes
            .iter()
            .filter_map(|write| self.write(write, revision, now_ms))
            .collect();
        if events.is_empty() {
            return Effect::Unchanged;
        }
        self.revision = revision;
        Effect::Changed(events)
    }

    /// Takes back `event`, which must be the last one that was applied.
    pub fn undo(&mut self, event: &Event) {
        match &event.previous {
            Some(previous) => self.insert(previous.clone()),
            None => self.take(&event.key),
        };
    }

    /// The entry of `key` if it was last written at that revision.
    pub fn at(&self, key: &str, mod_revision: Revision) -> Option<Arc<Entry>> {
        self.entries
            .get(key)
            .filter(|entry| entry.mod_revision == mod_revision)
            .cloned()
    }

    /// Puts an entry in place as it is; returns the event this makes.
    pub fn restore(&mut self, entry: Arc<Entry>) -> Event {
        let previous = self.insert(entry.clone());
        Event {
            revision: entry.mod_revision,
            key: entry.key.clone(),
            current: Some(entry),
            previous,
        }
    }

    /// Removes a key; `None` when it was not there.
    pub fn remove(&mut self, key: &str, revision: Revision) -> Option<Event> {
        let previous = self.take(key)?;
        Some(Event {
            revision,
            key: previous.key.clone(),
            current: None,
            previous: Some(previous),
        })
    }

    fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.bytes += size(&entry);
        let previous = self.entries.insert(entry.key.clone(), entry)?;
        self.bytes -= size(&previous);
        Some(previous)
    }

    fn take(&mut self, key: &str) -> Option<Arc<Entry>> {
        let previous = self.entries.remove(key)?;
        self.bytes -= size(&previous);
        Some(previous)
    }

    fn holds(&self, compare: &Compare) -> bool {
        let current = self.entries.get(compare.key());
        match compare {
            Compare::Absent { .. } => current.is_none(),
            Compare::Unchanged { mod_revision, .. } => current.is_some_and(|entry| entry.mod_revision == *mod_revision),
        }
    }

    fn write(&mut self, write: &Write, revision: Revision, now_ms: u64) -> Option<Event> {
        match write {
            Write::Put { key, value, ttl } => {
                let known = self.entries.get(&**key);
                let entry = Entry {
                    key: known.map_or_else(|| key.clone(), |known| known.key.clone()),
                    value: value.clone(),
                    create_revision: known.map_or(revision, |known| known.create_revision),
                    mod_revision: revision,
                    expires_at_ms: ttl.map_or(0, |ttl| now_ms.saturating_add(ttl.as_millis() as u64)),
                };
                Some(self.restore(Arc::new(entry)))
            }
            Write::Delete { key } => self.remove(key, revision),
        }
    }
}

fn size(entry: &Entry) -> u64 {
    (entry.key.len() + entry.value.len()) as u64
}

impl Snapshot for State {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.entries.get(key).cloned()
    }

    fn range<'a>(&'a self, prefix: &'a str, from: &'a str) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + Send + 'a> {
        let start = prefix.max(from);
        let entries = self.entries.range::<_, str>((Bound::Included(start), Bound::Unbounded));
        Box::new(
            entries
                .map(|(_, entry)| entry)
                .take_while(move |entry| entry.key.starts_with(prefix)),
        )
    }
}

impl Compare {
    pub(crate) fn key(&self) -> &str {
        match self {
            Compare::Absent { key } | Compare::Unchanged { key, .. } => key,
        }
    }
}

impl Write {
    pub(crate) fn key(&self) -> &Arc<str> {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

impl Transaction {
    /// Refuses what no engine can carry out.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let mut seen = HashSet::new();
        for key in self.writes.iter().map(Write::key) {
            if key.is_empty() {
                return Err(StoreError::Invalid("a key is empty".into()));
            }
            // One write is by far the most common; it needs no set.
            if self.writes.len() > 1 && !seen.insert(key) {
                return Err(StoreError::Invalid(format!("key {key} is written twice")));
            }
        }
        Ok(())
    }
}
