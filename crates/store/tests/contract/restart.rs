//! The embedded engine on real files: what a restart finds, who may open it, what compaction leaves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use store::embedded::{Options, open};
use store::{Store, StoreError};

use crate::kit::*;

/// Set for the process that `a_killed_process_loses_nothing_and_leaves_no_lock` starts and kills.
const VICTIM: &str = "STORE_TEST_VICTIM_DIRECTORY";

async fn reopen(directory: &Path) -> Arc<dyn Store> {
    open(directory, Options::default()).await.unwrap()
}

#[tokio::test]
async fn watches_pages_and_revisions_go_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path()).await;
    let first = write(&store, [put("/a", "1"), put("/b", "1")]).await;
    let second = write(&store, [put("/a", "2")]).await;
    let third = write(&store, [delete("/b")]).await;
    let created = store.snapshot().get("/a").unwrap().create_revision;
    store.close().await;

    let store = reopen(directory.path()).await;
    let mut watch = store.watch(first).await.unwrap();
    assert_eq!(lines(&read_to(&mut watch, third).await), ["~/a 1>2", "-/b 1"]);
    assert_eq!(keys(&*store.snapshot_at(second).await.unwrap(), "/", ""), ["/a", "/b"]);
    assert_eq!(store.snapshot().get("/a").unwrap().create_revision, created);
    assert_eq!(write(&store, [put("/c", "1")]).await, third + 1);
}

#[tokio::test]
async fn a_key_that_expired_while_the_store_was_closed_goes_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path()).await;
    let soon = Duration::from_millis(200);
    write(
        &store,
        [
            put_for("/short", "1", soon),
            put_for("/long", "1", Duration::from_secs(3600)),
        ],
    )
    .await;
    let last = write(&store, [put_for("/compacted", "1", soon)]).await;
    store.compact(last).await.unwrap();
    store.close().await;
    tokio::time::sleep(soon).await;

    let store = reopen(directory.path()).await;
    let mut watch = store.watch(last).await.unwrap();
    let gone = read_to(&mut watch, last + 2).await;
    assert_eq!(gone.len(), 2);
    assert_eq!(keys(&*store.snapshot(), "/", ""), ["/long"]);
}

#[tokio::test]
async fn only_one_may_have_it_open_and_only_the_owner_may_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/store");
    let store = reopen(&path).await;
    write(&store, [put("/a", "1")]).await;
    match open(&path, Options::default()).await {
        Err(StoreError::Unavailable(message)) => assert!(message.contains("in use by another process"), "{message}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened twice"),
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for file in fs::read_dir(&path).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    store.close().await;
    reopen(&path).await;
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    reopen(directory.path()).await.close().await;
    let stamp = directory.path().join("format");
    let said = "karve-store 2 00000000";
    fs::write(&stamp, format!("{said} {:08x}\n", crc32fast::hash(said.as_bytes()))).unwrap();
    let error = refused(open(directory.path(), Options::default()).await).to_string();
    assert!(error.contains("says format 2, this version knows up to 1"), "{error}");
    fs::remove_file(&stamp).unwrap();
    fs::write(directory.path().join("log-00000000000000000001"), "").unwrap();
    let error = refused(open(directory.path(), Options::default()).await).to_string();
    assert!(
        error.contains("format is missing although there is data beside it"),
        "{error}"
    );
}

#[tokio::test]
async fn old_history_is_compacted_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        history_age: Duration::ZERO,
        segment_bytes: 10_000,
        ..Options::default()
    };
    let embedded = open(directory.path(), options).await.unwrap();
    let store: Arc<dyn Store> = embedded;
    let value = "x".repeat(1000);
    let mut last = 0;
    for round in 0..300 {
        last = write(&store, [put(&format!("/{}", round % 5), value.clone())]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let used = || log_bytes(directory.path());
    let settled = tokio::time::timeout(PATIENCE, async {
        while used() > 100_000 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    settled.await.unwrap_or_else(|_| panic!("{} bytes are left", used()));
    assert!(matches!(refused(store.watch(1).await), StoreError::Compacted { .. }));
    store.close().await;
    let store = reopen(directory.path()).await;
    assert_eq!((store.snapshot().revision(), store.snapshot().count("/")), (last, 5));
}

#[tokio::test]
async fn old_history_is_refused_although_it_takes_little_space() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        history_age: Duration::from_millis(200),
        ..Options::default()
    };
    let embedded = open(directory.path(), options).await.unwrap();
    let store: Arc<dyn Store> = embedded;
    let old = write(&store, [put("/a", "old")]).await;
    let now = write(&store, [put("/a", "new")]).await;
    assert!(store.snapshot_at(old).await.is_ok());
    let forgotten = tokio::time::timeout(PATIENCE, async {
        while store.snapshot_at(old).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    forgotten.await.expect("old history is still there");
    assert!(matches!(
        refused(store.snapshot_at(old).await),
        StoreError::Compacted { oldest, .. } if oldest == now
    ));
    assert!(store.snapshot_at(now).await.is_ok());
    assert!(matches!(refused(store.watch(old).await), StoreError::Compacted { .. }));
    store.close().await;
}

#[tokio::test]
async fn a_missing_file_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        segment_bytes: 1000,
        ..Options::default()
    };
    let store: Arc<dyn Store> = open(directory.path(), options()).await.unwrap();
    for round in 0..10 {
        write(&store, [put("/a", format!("{round}{}", "x".repeat(700)))]).await;
    }
    store.close().await;
    let mut logs: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    logs.retain(|path| path.display().to_string().contains("/log-"));
    logs.sort();
    fs::remove_file(&logs[1]).unwrap();
    let error = refused(open(directory.path(), options()).await).to_string();
    assert!(error.contains("a file is missing or damaged"), "{error}");
    assert!(error.contains(&logs[2].display().to_string()), "{error}");
}

#[tokio::test]
async fn old_history_is_compacted_at_start_without_a_write() {
    let directory = tempfile::tempdir().unwrap();
    let options = |history_age| Options {
        history_age,
        segment_bytes: 10_000,
        ..Options::default()
    };
    let store: Arc<dyn Store> = open(directory.path(), options(Duration::from_secs(3600)))
        .await
        .unwrap();
    for _ in 0..100 {
        write(&store, [put("/a", "x".repeat(1000))]).await;
    }
    store.close().await;
    assert!(log_bytes(directory.path()) > 90_000);
    let store: Arc<dyn Store> = open(directory.path(), options(Duration::ZERO)).await.unwrap();
    let settled = tokio::time::timeout(PATIENCE, async {
        while log_bytes(directory.path()) > 20_000 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    settled.await.expect("nothing was compacted");
    assert_eq!(store.snapshot().revision(), 100);
}

fn log_bytes(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).unwrap().map(Result::unwrap);
    files
        .filter(|file| file.file_name().to_string_lossy().starts_with("log-"))
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

#[tokio::test]
async fn a_log_that_is_removed_while_in_use_takes_no_more_writes() {
    let directory = tempfile::tempdir().unwrap();
    let store = reopen(directory.path()).await;
    write(&store, [put("/a", "1")]).await;
    let log = directory.path().join("log-00000000000000000001");
    let aside = directory.path().join("aside");
    fs::rename(&log, &aside).unwrap();
    let noticed = tokio::time::timeout(PATIENCE, async {
        while store.check_writable().is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    noticed.await.expect("nobody noticed");
    let why = refused(store.commit(transaction([], [put("/b", "1")])).await).to_string();
    assert!(why.contains("is gone"), "{why}");

    fs::rename(&aside, &log).unwrap();
    let back = tokio::time::timeout(PATIENCE, async {
        while store.check_writable().is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    back.await.expect("the store goes on when the file is back");
    write(&store, [put("/b", "1")]).await;
    store.close().await;
    assert_eq!(keys(&*reopen(directory.path()).await.snapshot(), "/", ""), ["/a", "/b"]);
}

#[tokio::test]
async fn beyond_the_quota_only_what_frees_space_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        quota_bytes: 10_000,
        ..Options::default()
    };
    let store: Arc<dyn Store> = open(directory.path(), options).await.unwrap();
    for number in 0..9 {
        write(&store, [put(&format!("/{number}"), "x".repeat(1000))]).await;
    }
    assert!(store.check_writable().is_ok());
    let revision = store.snapshot().revision();
    let creates = transaction([], [put("/more", "x".repeat(1000))]);
    let error = refused(store.commit(creates.clone()).await);
    assert!(matches!(error, StoreError::QuotaExceeded), "{error}");
    assert_eq!(error.to_string(), "etcdserver: mvcc: database space exceeded");
    assert!(matches!(refused(store.check_writable()), StoreError::QuotaExceeded));
    assert_eq!(store.snapshot().revision(), revision, "nothing was written");

    write(&store, [put("/0", "y".repeat(1000))]).await;
    store.compact(revision).await.unwrap();
    write(&store, [delete("/1")]).await;
    assert!(
        store.check_writable().is_ok(),
        "the write that was refused would fit now"
    );
    store.commit(creates).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_killed_process_loses_nothing_and_leaves_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let mut victim = Victim::start(directory.path());
        let mut promised = 0;
        let mut lines = BufReader::new(victim.0.stdout.take().unwrap()).lines();
        for line in &mut lines {
            let line = line.unwrap();
            let Some(revision) = line.strip_prefix("committed ") else {
                continue;
            };
            promised = revision.parse::<u64>().unwrap();
            if promised % 200 == 150 {
                break;
            }
        }
        assert!(matches!(
            open(directory.path(), Options::default()).await,
            Err(StoreError::Unavailable(_))
        ));
        victim.0.kill().unwrap();
        victim.0.wait().unwrap();
        let store = reopen(directory.path()).await;
        let snapshot = store.snapshot();
        assert!(
            promised > 0 && snapshot.revision() >= promised,
            "round {round}: {promised} was promised"
        );
        assert_eq!(
            snapshot.count("/"),
            snapshot.revision() as usize,
            "every revision wrote a key of its own"
        );
        store.close().await;
    }
}

struct Victim(Child);

impl Victim {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "restart::the_victim_writes_until_it_is_killed",
            "--nocapture",
            "--test-threads=1",
        ]);
        Victim(command.env(VICTIM, directory).stdout(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Only the other process of the test above does anything here.
#[tokio::test]
async fn the_victim_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(VICTIM) else {
        return;
    };
    let store = reopen(Path::new(&directory)).await;
    loop {
        let next = store.snapshot().revision() + 1;
        let revision = write(&store, [put(&format!("/{next}"), "x".repeat((next % 5000) as usize))]).await;
        println!("committed {revision}");
    }
}
