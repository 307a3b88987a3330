//! Random histories against a model that anyone can read: a list of maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use store::embedded::{Options, open_on};
use store::{Compare, Outcome, Revision, Store, StoreError, Transaction, Write};

use crate::faulty::FaultyDisk;
use crate::kit::*;

/// A key's value, create revision and mod revision.
type Row = (String, Revision, Revision);

#[derive(Clone, Debug)]
enum Step {
    Commit {
        compares: Vec<(usize, Guess)>,
        writes: Vec<(usize, Option<u16>)>,
    },
    Compact {
        back: u64,
    },
    Reopen,
}

/// What a compare expects.
#[derive(Clone, Copy, Debug)]
enum Guess {
    Absent,
    /// The true revision, or a wrong one.
    Unchanged {
        right: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let guess = prop_oneof![
        Just(Guess::Absent),
        Just(Guess::Unchanged { right: true }),
        Just(Guess::Unchanged { right: true }),
        Just(Guess::Unchanged { right: false })
    ];
    let commit = (
        vec((0..5usize, guess), 0..2),
        vec((0..5usize, proptest::option::weighted(0.7, any::<u16>())), 0..4),
    )
        .prop_map(|(compares, writes)| Step::Commit { compares, writes });
    prop_oneof![20 => commit, 1 => (0..10u64).prop_map(|back| Step::Compact { back }), 1 => Just(Step::Reopen)]
}

/// Every revision's map; index = revision.
struct Model {
    history: Vec<BTreeMap<String, Row>>,
    floor: Revision,
}

impl Model {
    fn revision(&self) -> Revision {
        self.history.len() as Revision - 1
    }

    fn now(&self) -> &BTreeMap<String, Row> {
        &self.history[self.history.len() - 1]
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent { key } => !self.now().contains_key(&**key),
            Compare::Unchanged { key, mod_revision } => {
                self.now().get(&**key).is_some_and(|row| row.2 == *mod_revision)
            }
        }
    }

    fn commit(&mut self, transaction: &Transaction) -> bool {
        if !transaction.compares.iter().all(|compare| self.holds(compare)) {
            return false;
        }
        let revision = self.revision() + 1;
        let mut next = self.now().clone();
        for write in &transaction.writes {
            match write {
                Write::Put { key, value, .. } => {
                    let created = next.get(&**key).map_or(revision, |row| row.1);
                    next.insert(
                        key.to_string(),
                        (String::from_utf8_lossy(value).into(), created, revision),
                    );
                }
                Write::Delete { key } => drop(next.remove(&**key)),
            }
        }
        if next != *self.now() {
            self.history.push(next);
        }
        true
    }

    fn transaction(&self, compares: &[(usize, Guess)], writes: &[(usize, Option<u16>)]) -> Transaction {
        let compare = |(key, guess): &(usize, Guess)| {
            let key = key_name(*key);
            let true_revision = self.now().get(&key).map_or(0, |row| row.2);
            match guess {
                Guess::Absent => absent(&key),
                Guess::Unchanged { right: true } => unchanged(&key, true_revision),
                Guess::Unchanged { right: false } => unchanged(&key, true_revision + 1),
            }
        };
        let mut by_key: BTreeMap<usize, Write> = BTreeMap::new();
        for (key, value) in writes {
            let name = key_name(*key);
            by_key.insert(
                *key,
                value.map_or_else(|| delete(&name), |value| put(&name, format!("{value}"))),
            );
        }
        Transaction {
            compares: compares.iter().map(compare).collect(),
            writes: by_key.into_values().collect(),
        }
    }

    async fn check(&self, store: &Arc<dyn Store>) {
        for revision in self.floor..=self.revision() {
            let snapshot = store.snapshot_at(revision).await.unwrap();
            let rows: BTreeMap<String, Row> = snapshot
                .range("", "")
                .map(|entry| {
                    let value = String::from_utf8_lossy(&entry.value).into_owned();
                    (
                        entry.key.to_string(),
                        (value, entry.create_revision, entry.mod_revision),
                    )
                })
                .collect();
            assert_eq!(rows, self.history[revision as usize], "at revision {revision}");
        }
        if self.floor > 0 {
            let below = store.snapshot_at(self.floor - 1).await;
            assert!(matches!(below, Err(StoreError::Compacted { .. })));
        }
        if self.revision() > self.floor {
            self.check_watch(store).await;
        }
    }

    /// The events since the floor, applied to the state at the floor, give every later state.
    async fn check_watch(&self, store: &Arc<dyn Store>) {
        let mut watch = store.watch(self.floor).await.unwrap();
        let mut rows = self.history[self.floor as usize].clone();
        let events = read_to(&mut watch, self.revision()).await;
        for (index, event) in events.iter().enumerate() {
            let previous = event.previous.as_ref().map(|entry| entry.mod_revision);
            assert_eq!(
                previous,
                rows.get(&*event.key).map(|row| row.2),
                "what was before {event:?}"
            );
            match &event.current {
                Some(entry) => {
                    let value = String::from_utf8_lossy(&entry.value).into_owned();
                    rows.insert(
                        event.key.to_string(),
                        (value, entry.create_revision, entry.mod_revision),
                    );
                }
                None => drop(rows.remove(&*event.key)),
            }
            if events.get(index + 1).is_none_or(|next| next.revision > event.revision) {
                assert_eq!(
                    rows, self.history[event.revision as usize],
                    "after the events of {}",
                    event.revision
                );
            }
        }
    }
}

fn key_name(key: usize) -> String {
    format!("/{key}")
}

/// Runs the steps; `reopen` gives the store after a restart.
async fn run<R: Future<Output = Arc<dyn Store>>>(steps: Vec<Step>, reopen: impl Fn(Option<Arc<dyn Store>>) -> R) {
    let mut store = reopen(None).await;
    let mut model = Model {
        history: vec![BTreeMap::new()],
        floor: 0,
    };
    for step in steps {
        match step {
            Step::Commit { compares, writes } => {
                let transaction = model.transaction(&compares, &writes);
                let held = model.commit(&transaction);
                match store.commit(transaction).await.unwrap() {
                    Outcome::Committed { revision } => assert!(held && revision == model.revision()),
                    Outcome::Conflict { .. } => assert!(!held),
                }
            }
            Step::Compact { back } => {
                model.floor = model.floor.max(model.revision().saturating_sub(back));
                store.compact(model.floor).await.unwrap();
            }
            Step::Reopen => store = reopen(Some(store)).await,
        }
    }
    model.check(&store).await;
    store.close().await;
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_engine_does_what_the_model_does(steps in vec(step(), 1..60)) {
        block_on(run(steps, |store| async move { store.unwrap_or_else(|| store::memory::open()) }));
    }

    #[test]
    fn the_embedded_engine_does_what_the_model_does(steps in vec(step(), 1..60), memory_bytes in 0..3000usize) {
        let disk = FaultyDisk::new(0);
        let reopen = |store: Option<Arc<dyn Store>>| {
            let disk = disk.clone();
            async move {
                if let Some(store) = store {
                    store.close().await;
                }
                let options = Options { segment_bytes: 300, memory_bytes, ..Options::default() };
                open_on(Arc::new(disk), options).await.unwrap() as Arc<dyn Store>
            }
        };
        block_on(run(steps, reopen));
    }
}
