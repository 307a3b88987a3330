//! Whatever the disk does: a write that was acknowledged is there after the next start, one that was refused is not, and
//! damage is never served as data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use store::embedded::{Disk, Embedded, Options, open_on};
use store::{Outcome, Revision, Store, StoreError, Transaction, Write};

use crate::faulty::{Crash, Faults, FaultyDisk, Random};
use crate::kit::*;

type Pairs = Vec<(String, Option<String>)>;

/// What the clients were told, over all lives of one store.
#[derive(Default)]
struct Promises {
    committed: BTreeMap<Revision, Pairs>,
    refused: Vec<String>,
    transactions: usize,
}

impl Promises {
    /// Writes at random, one transaction or several at once, and remembers the answers. Every value is unique. `false` when
    /// no more can be written.
    async fn write(&mut self, store: &Arc<Embedded>, random: &mut Random) -> bool {
        let count = if random.chance(3) { 2 + random.below(6) } else { 1 };
        let transactions: Vec<_> = (0..count)
            .map(|slot| self.transaction(store, random, slot, count))
            .collect();
        let commits = transactions
            .iter()
            .map(|(transaction, _)| store.commit(transaction.clone()));
        let answers = join_all(commits).await;
        let mut goes_on = true;
        for (answer, (transaction, pairs)) in answers.into_iter().zip(transactions) {
            match answer {
                Ok(Outcome::Committed { revision }) if !pairs.is_empty() => {
                    self.committed.insert(revision, pairs);
                }
                Ok(_) => (),
                Err(StoreError::Unavailable(_)) => self.refused.extend(transaction.writes.iter().filter_map(written)),
                Err(StoreError::Unknown(_) | StoreError::ReadOnly(_)) => goes_on = false,
                Err(other) => panic!("{other}"),
            }
        }
        goes_on
    }

    /// A transaction and what it will change. Of several at once each has keys of its own and deletes nothing, so that this
    /// does not depend on their order.
    fn transaction(
        &mut self,
        store: &Arc<Embedded>,
        random: &mut Random,
        slot: usize,
        count: usize,
    ) -> (Transaction, Pairs) {
        let number = self.transactions;
        self.transactions += 1;
        let size = [10, 300, 2000, 9000][random.below(4)];
        let mut writes: BTreeMap<String, Write> = BTreeMap::new();
        for _ in 0..=random.below(3) {
            let key = if count == 1 {
                format!("/k/{}", random.below(8))
            } else {
                format!("/{slot}/{}", random.below(8))
            };
            let deletes = count == 1 && random.chance(4);
            let change = if deletes {
                delete(&key)
            } else {
                put(&key, text(number, size))
            };
            writes.insert(key, change);
        }
        let before = store.snapshot();
        let effective = |write: &Write| match write {
            Write::Put { key, .. } => Some((key.to_string(), written(write))),
            Write::Delete { key } => before.get(key).map(|_| (key.to_string(), None)),
        };
        let pairs = writes.values().filter_map(effective).collect();
        (transaction([], writes.into_values().collect::<Vec<_>>()), pairs)
    }

    /// Compares a store that was just opened with what was promised. `floor`: history before it is compacted.
    async fn check(&self, store: &Arc<Embedded>, floor: Revision, story: &str) {
        let now = store.snapshot();
        let last = self.committed.keys().next_back().copied().unwrap_or(0);
        assert!(
            now.revision() >= last,
            "{story}: revision {last} was promised, {} is there",
            now.revision()
        );
        let then = store
            .snapshot_at(floor)
            .await
            .unwrap_or_else(|error| panic!("{story}: {error}"));
        let mut state: BTreeMap<String, String> = then
            .range("", "")
            .map(|entry| (entry.key.to_string(), utf8(&entry.value)))
            .collect();
        let mut found: BTreeMap<Revision, Pairs> = BTreeMap::new();
        if now.revision() > floor {
            let mut watch: Box<dyn store::EventStream> = store.watch(floor).await.unwrap();
            for event in read_to(&mut watch, now.revision()).await {
                let value = event.current.as_ref().map(|entry| utf8(&entry.value));
                match &value {
                    Some(value) => state.insert(event.key.to_string(), value.clone()),
                    None => state.remove(&*event.key),
                };
                found
                    .entry(event.revision)
                    .or_default()
                    .push((event.key.to_string(), value));
            }
        }
        for (revision, pairs) in self.committed.range(floor + 1..) {
            assert_eq!(found.get(revision), Some(pairs), "{story}: revision {revision}");
        }
        let served: BTreeMap<String, String> = now
            .range("", "")
            .map(|entry| (entry.key.to_string(), utf8(&entry.value)))
            .collect();
        assert_eq!(served, state, "{story}: the state is not the sum of its history");
        for refused in &self.refused {
            assert!(
                !state.values().any(|value| value == refused),
                "{story}: a refused write came back"
            );
        }
    }
}

fn written(write: &Write) -> Option<String> {
    match write {
        Write::Put { value, .. } => Some(utf8(value)),
        Write::Delete { .. } => None,
    }
}

fn text(number: usize, size: usize) -> String {
    format!("{number}:{}", "v".repeat(size))
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Small files, so that a short life passes through many of them.
fn options() -> Options {
    Options {
        segment_bytes: 20_000,
        ..Options::default()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// One life of a store: opens it, writes until something breaks or `writes` are done.
async fn live(disk: &FaultyDisk, promises: &mut Promises, writes: usize, random: &mut Random, story: &str) {
    let Ok(store) = open_on(Arc::new(disk.clone()), options()).await else {
        return; // The fault struck while opening; the next life tells whether anything is lost.
    };
    promises.check(&store, 0, story).await;
    for _ in 0..writes {
        if !promises.write(&store, random).await {
            break;
        }
    }
}

async fn reopen_and_check(disk: FaultyDisk, promises: &Promises, story: &str) {
    let store = open_on(Arc::new(disk), options())
        .await
        .unwrap_or_else(|error| panic!("{story}: {error}"));
    promises.check(&store, 0, story).await;
}

/// Where history begins after compactions that nobody asked for.
async fn oldest(store: &Arc<Embedded>) -> Revision {
    match store.snapshot_at(0).await {
        Err(StoreError::Compacted { oldest, .. }) => oldest,
        _ => 0,
    }
}

#[test]
fn nothing_is_lost_whenever_the_machine_goes_down() {
    block_on(async {
        let writes = 25;
        let rehearsal = FaultyDisk::new(1);
        live(
            &rehearsal,
            &mut Promises::default(),
            writes,
            &mut Random(1),
            "rehearsal",
        )
        .await;
        let operations = rehearsal.operations();
        assert!(operations > 2 * writes, "only {operations} operations");
        for crash in [Crash::Killed, Crash::PowerLoss] {
            for at in 0..operations {
                let story = format!("{crash:?} at operation {at}");
                let mut promises = Promises::default();
                let disk = FaultyDisk::new(at as u64);
                disk.set_faults(Faults {
                    crash_at: Some(at),
                    ..Faults::default()
                });
                live(&disk, &mut promises, writes, &mut Random(1), &story).await;
                reopen_and_check(disk.after(crash), &promises, &story).await;
            }
        }
    });
}

#[test]
fn nothing_is_lost_over_many_crashes_of_one_store() {
    block_on(async {
        for seed in 0..60 {
            let mut random = Random(seed);
            let mut promises = Promises::default();
            let mut disk = FaultyDisk::new(seed);
            for crash in 0..6 {
                let at = random.below(60);
                let story = format!("seed {seed}, life {crash}, crash at {at}");
                disk.set_faults(Faults {
                    crash_at: Some(at),
                    ..Faults::default()
                });
                live(&disk, &mut promises, 40, &mut random, &story).await;
                disk = disk.after(if random.chance(2) {
                    Crash::Killed
                } else {
                    Crash::PowerLoss
                });
            }
            reopen_and_check(disk, &promises, &format!("seed {seed}")).await;
        }
    });
}

#[test]
fn after_a_failed_sync_the_store_takes_the_batch_back_and_goes_on() {
    block_on(async {
        for seed in 0..40 {
            let story = format!("seed {seed}");
            let mut random = Random(seed);
            let mut promises = Promises::default();
            let disk = FaultyDisk::new(seed);
            let store = open_on(Arc::new(disk.clone()), options()).await.unwrap();
            let fail_sync_at = Some(disk.operations() + random.below(30));
            disk.set_faults(Faults {
                fail_sync_at,
                ..Faults::default()
            });
            while promises.refused.is_empty() {
                assert!(promises.write(&store, &mut random).await, "{story}");
            }
            let last = promises.committed.keys().next_back().copied().unwrap_or(0);
            assert_eq!(
                store.snapshot().revision(),
                last,
                "{story}: only durable writes are served"
            );
            for _ in 0..10 {
                assert!(promises.write(&store, &mut random).await, "{story}: writes go on");
            }
            let crash = if random.chance(2) {
                Crash::Killed
            } else {
                Crash::PowerLoss
            };
            reopen_and_check(disk.after(crash), &promises, &story).await;
        }
    });
}

/// Waits until the store says that it takes writes.
async fn recovered(store: &Arc<Embedded>, story: &str) {
    let writable = tokio::time::timeout(PATIENCE, async {
        while store.check_writable().is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    writable
        .await
        .unwrap_or_else(|_| panic!("{story}: {:?}", store.check_writable()));
}

#[test]
fn while_syncs_fail_the_store_is_read_only_and_it_goes_on_when_they_work() {
    block_on(async {
        for seed in 0..10 {
            let story = format!("seed {seed}");
            let mut random = Random(seed);
            let mut promises = Promises::default();
            let disk = FaultyDisk::new(seed);
            let store = open_on(Arc::new(disk.clone()), options()).await.unwrap();
            for _ in 0..random.below(20) {
                assert!(promises.write(&store, &mut random).await, "{story}");
            }
            assert!(store.check_writable().is_ok(), "{story}");
            disk.set_faults(Faults {
                fail_syncs: true,
                ..Faults::default()
            });
            while promises.write(&store, &mut random).await {}
            let last = promises.committed.keys().next_back().copied().unwrap_or(0);
            assert_eq!(
                store.snapshot().revision(),
                last,
                "{story}: only durable writes are served"
            );
            let more = store.commit(transaction([], [put("/k/more", "x")])).await;
            assert!(matches!(more, Err(StoreError::ReadOnly(_))), "{story}: {more:?}");
            let why = refused(store.check_writable()).to_string();
            assert!(why.contains("the sync failed"), "{story}: {why}");
            store.latest().await.expect("reads go on");

            disk.set_faults(Faults::default());
            recovered(&store, &story).await;
            for _ in 0..10 {
                assert!(promises.write(&store, &mut random).await, "{story}: writes go on");
            }
            let crash = if random.chance(2) {
                Crash::Killed
            } else {
                Crash::PowerLoss
            };
            reopen_and_check(disk.after(crash), &promises, &story).await;
        }
    });
}

#[test]
fn history_that_fills_the_disk_is_compacted_into_the_space_set_aside() {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let store = open_on(Arc::new(disk.clone()), options()).await.unwrap();
        let reserved = tokio::time::timeout(PATIENCE, async {
            while !disk.lengths().contains_key("reserve") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        reserved.await.expect("space is set aside at start");
        let capacity = Some(disk.lengths().values().sum::<usize>() + 800_000);
        disk.set_faults(Faults {
            capacity,
            ..Faults::default()
        });
        // Far more than fits, of which a single value is alive.
        let (mut written, mut refusals) = (0, 0);
        let everything = tokio::time::timeout(PATIENCE, async {
            while written < 300 {
                match store.commit(transaction([], [put("/k", text(written, 20_000))])).await {
                    Ok(_) => written += 1,
                    Err(StoreError::Unavailable(_)) => {
                        refusals += 1;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
        everything.await.expect("the store goes on");
        assert!(refusals > 0, "the disk was never full");
        recovered(&store, "after the last write").await;
        let disk = disk.after(Crash::Killed);
        let store = open_on(Arc::new(disk), options()).await.unwrap();
        assert_eq!(value(&*store.snapshot(), "/k"), Some(text(299, 20_000)));
    });
}

#[test]
fn a_log_that_lost_acknowledged_writes_is_refused_until_somebody_accepts_the_loss() {
    block_on(async {
        for how in ["truncated", "emptied", "removed"] {
            let mut random = Random(3);
            let mut promises = Promises::default();
            let disk = FaultyDisk::new(3);
            live(&disk, &mut promises, 20, &mut random, how).await;
            let disk = disk.after(Crash::Killed);
            let last_log = disk
                .lengths()
                .into_keys()
                .rfind(|name| name.starts_with("log-"))
                .unwrap();
            let file = disk.open(&last_log).unwrap();
            match how {
                "truncated" => file.truncate(file.length().unwrap() / 64).unwrap(),
                "emptied" => file.truncate(0).unwrap(),
                _ => disk.remove(&last_log).unwrap(),
            }
            let before = disk.lengths();
            let last = *promises.committed.keys().next_back().unwrap();
            let message = refused(open_on(Arc::new(disk.clone()), options()).await).to_string();
            let acknowledged = format!("writes up to revision {last} were acknowledged");
            assert!(message.contains(&acknowledged), "{how}: {message}");
            assert!(
                message.contains(&format!("--accept-lost-revisions={last}")),
                "{how}: {message}"
            );
            assert_eq!(disk.lengths(), before, "{how}: nothing is changed");

            let accepting = |revision| Options {
                accept_lost_to: Some(revision),
                ..options()
            };
            let other = open_on(Arc::new(disk.clone()), accepting(last - 1)).await;
            assert!(
                matches!(other, Err(StoreError::Corrupt(_))),
                "{how}: another loss was accepted"
            );
            let store = open_on(Arc::new(disk.clone()), accepting(last)).await.unwrap();
            let next = store.commit(transaction([], [put("/k/next", "x")])).await.unwrap();
            assert_eq!(
                next,
                Outcome::Committed { revision: last + 1 },
                "{how}: no revision comes twice"
            );
            drop(store);
            let store = open_on(Arc::new(disk.after(Crash::Killed)), options()).await.unwrap();
            assert_eq!(store.snapshot().revision(), last + 1, "{how}");
            assert_eq!(value(&*store.snapshot(), "/k/next").as_deref(), Some("x"), "{how}");
        }
    });
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room_again() {
    block_on(async {
        for seed in 0..30 {
            let story = format!("seed {seed}");
            let mut random = Random(seed);
            let mut promises = Promises::default();
            let disk = FaultyDisk::new(seed);
            let store = open_on(Arc::new(disk.clone()), options()).await.unwrap();
            let full = || Faults {
                capacity: Some(300_000),
                ..Faults::default()
            };
            disk.set_faults(full());
            while promises.refused.len() < 5 {
                assert!(promises.write(&store, &mut random).await, "{story}");
            }
            // From here on nothing may grow, so that only more room helps.
            disk.set_faults(Faults {
                capacity: Some(0),
                ..Faults::default()
            });
            let large = store.commit(transaction([], [put("/large", "x".repeat(40_000))])).await;
            assert!(matches!(large, Err(StoreError::Unavailable(_))), "{story}: {large:?}");
            let why = refused(store.check_writable()).to_string();
            assert!(why.contains("the log cannot be written"), "{story}: {why}");
            let before = promises.committed.len();
            disk.set_faults(Faults::default());
            recovered(&store, &story).await;
            for _ in 0..10 {
                assert!(promises.write(&store, &mut random).await, "{story}");
            }
            assert!(promises.committed.len() > before, "{story}: writes succeed again");
            disk.set_faults(full());
            while promises.refused.len() < 8 {
                assert!(promises.write(&store, &mut random).await, "{story}");
            }
            let crash = if random.chance(2) {
                Crash::Killed
            } else {
                Crash::PowerLoss
            };
            let store = open_on(Arc::new(disk.after(crash)), options())
                .await
                .unwrap_or_else(|error| panic!("{story}: {error}"));
            promises.check(&store, oldest(&store).await, &story).await;
        }
    });
}

#[test]
fn a_flipped_bit_is_refused_by_name_or_harmless() {
    block_on(async {
        let mut refused = 0;
        for seed in 0..300 {
            let mut random = Random(seed);
            let mut promises = Promises::default();
            let disk = FaultyDisk::new(seed);
            live(&disk, &mut promises, 12, &mut random, "before the flip").await;
            let mut disk = disk.after(Crash::Killed);
            if seed % 3 == 0 {
                let store = open_on(Arc::new(disk.clone()), options()).await.unwrap();
                store.compact(store.snapshot().revision() / 2).await.unwrap();
                drop(store);
                disk = disk.after(Crash::Killed);
            }
            let flipped = disk.flip(|_| true, &mut random);
            let story = format!("seed {seed}, flipped {flipped:?}");
            match open_on(Arc::new(disk), options()).await {
                Ok(store) => {
                    let floor = if seed % 3 == 0 {
                        store.snapshot().revision() / 2
                    } else {
                        0
                    };
                    promises.check(&store, floor, &story).await;
                }
                Err(StoreError::Corrupt(message)) => {
                    refused += 1;
                    let (name, _) = flipped.unwrap();
                    assert!(message.contains("faulty:"), "{story}: {message}");
                    assert!(
                        message.contains("backup") || message.contains("newer version"),
                        "{story}: {message}"
                    );
                    assert!(
                        message.contains(&name) || message.contains("a file is missing"),
                        "{story}: {message}"
                    );
                }
                Err(other) => panic!("{story}: {other}"),
            }
        }
        assert!(refused > 10, "only {refused} flips hit data");
    });
}

#[test]
fn compaction_can_be_interrupted_anywhere() {
    block_on(async {
        for seed in 0..80 {
            let mut random = Random(seed);
            let mut promises = Promises::default();
            let disk = FaultyDisk::new(seed);
            let store = open_on(Arc::new(disk.clone()), options()).await.unwrap();
            for _ in 0..30 {
                promises.write(&store, &mut random).await;
            }
            let crash_at = Some(disk.operations() + random.below(20));
            disk.set_faults(Faults {
                crash_at,
                ..Faults::default()
            });
            let mut floor = 0;
            for _ in 0..3 {
                let target = floor + 1 + random.below((store.snapshot().revision() - floor) as usize) as u64;
                if store.compact(target).await.is_ok() {
                    floor = target;
                }
                promises.write(&store, &mut random).await;
                if floor == store.snapshot().revision() {
                    break;
                }
            }
            let crash = if random.chance(2) {
                Crash::Killed
            } else {
                Crash::PowerLoss
            };
            let story = format!("seed {seed}, crash at {crash_at:?}, compacted to {floor}, {crash:?}");
            let disk = disk.after(crash);
            drop(store);
            let store = open_on(Arc::new(disk), options())
                .await
                .unwrap_or_else(|error| panic!("{story}: {error}"));
            // An interrupted compaction may have reached its end without telling.
            let oldest = match store.snapshot_at(floor).await {
                Err(StoreError::Compacted { oldest, .. }) => oldest,
                _ => floor,
            };
            promises.check(&store, oldest, &story).await;
        }
    });
}
