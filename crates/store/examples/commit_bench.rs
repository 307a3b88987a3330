//! Measures the embedded engine: synced commits by one and by many writers, readers beside them, memory and start.
//!
//! `cargo run --release -p store --example commit_bench [DIRECTORY]`; the directory should be on the disk of interest.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::embedded::{Options, open};
use store::{Outcome, Store, Transaction, Write};

const WINDOW: Duration = Duration::from_secs(3);
const VALUE_BYTES: usize = 1024;
const LARGE_KEYS: usize = 100_000;
const LARGE_VALUE_BYTES: usize = 4096;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = base.join(format!("store-commit-bench-{}", std::process::id()));
    let result = run(&directory).await;
    std::fs::remove_dir_all(&directory)?;
    result
}

async fn run(directory: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let store: Arc<dyn Store> = open(&directory.join("commits"), Options::default()).await?;
    for writers in [1, 8, 64, 512] {
        report_commits(&store, writers).await;
    }
    report_readers(&store).await;
    store.close().await;
    report_memory(directory).await
}

async fn report_commits(store: &Arc<dyn Store>, writers: usize) {
    let start = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| tokio::spawn(write_for(store.clone(), writer, WINDOW)))
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("a writer panicked"));
    }
    let elapsed = start.elapsed();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_micros();
    println!(
        "{writers:4} writers: {:8.0} commits/s   p50 {:6} µs   p99 {:6} µs",
        latencies.len() as f64 / elapsed.as_secs_f64(),
        at(0.5),
        at(0.99)
    );
}

async fn write_for(store: Arc<dyn Store>, writer: usize, window: Duration) -> Vec<Duration> {
    let mut latencies = Vec::new();
    let end = Instant::now() + window;
    for number in 0.. {
        let start = Instant::now();
        if start > end {
            break;
        }
        let key = format!("/registry/configmaps/bench/{writer:03}-{:05}", number % 1000);
        let write = Write::Put {
            key: key.into(),
            value: Bytes::from(vec![b'x'; VALUE_BYTES]),
            ttl: None,
        };
        let outcome = store
            .commit(Transaction {
                compares: vec![],
                writes: vec![write],
            })
            .await;
        assert!(matches!(outcome, Ok(Outcome::Committed { .. })), "{outcome:?}");
        latencies.push(start.elapsed());
    }
    latencies
}

/// Reads while 64 writers write.
async fn report_readers(store: &Arc<dyn Store>) {
    let writers: Vec<_> = (0..64)
        .map(|writer| tokio::spawn(write_for(store.clone(), writer, WINDOW)))
        .collect();
    let reader = store.clone();
    let reads = tokio::task::spawn_blocking(move || {
        let (mut count, mut longest) = (0u64, Duration::ZERO);
        let end = Instant::now() + WINDOW;
        while Instant::now() < end {
            let start = Instant::now();
            assert!(reader.snapshot().get("/registry/configmaps/bench/000-00000").is_some());
            longest = longest.max(start.elapsed());
            count += 1;
        }
        (count, longest)
    });
    let (count, longest) = reads.await.expect("the reader panicked");
    for writer in writers {
        writer.await.expect("a writer panicked");
    }
    println!(
        "reads beside 64 writers: {:.0}/s, longest {longest:?}",
        count as f64 / WINDOW.as_secs_f64()
    );
}

async fn report_memory(directory: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let path = directory.join("large");
    let before = resident_bytes();
    let store = open(&path, Options::default()).await?;
    for batch in 0..LARGE_KEYS / 100 {
        let key = |number: usize| format!("/registry/pods/bench/{:06}", batch * 100 + number).into();
        let put = |number| Write::Put {
            key: key(number),
            value: Bytes::from(vec![b'x'; LARGE_VALUE_BYTES]),
            ttl: None,
        };
        store
            .commit(Transaction {
                compares: vec![],
                writes: (0..100).map(put).collect(),
            })
            .await?;
    }
    let stored = (LARGE_KEYS * LARGE_VALUE_BYTES) as f64;
    let grown = (resident_bytes() - before) as f64;
    println!(
        "memory for {LARGE_KEYS} values of {LARGE_VALUE_BYTES} bytes: {:.2} × stored bytes",
        grown / stored
    );
    let revision = store.snapshot().revision();
    store.close().await;
    drop(store);
    let start = Instant::now();
    let store = open(&path, Options::default()).await?;
    assert_eq!(store.snapshot().revision(), revision);
    println!("start with them from the log: {:?}", start.elapsed());
    store.compact(revision).await?;
    store.close().await;
    drop(store);
    let start = Instant::now();
    let store = open(&path, Options::default()).await?;
    println!("start with them from a checkpoint: {:?}", start.elapsed());
    store.close().await;
    Ok(())
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * 4096
}
