//! An embedded store whose values lie on the disk in another form than in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use store::codec::{Codec, CodecError};
use store::embedded::{Embedded, Options, open_with_codec};
use store::{Store, StoreError, Transaction, Write};

/// Turns every byte by a mask that can change; what was turned by another one is not known again.
struct Masked(AtomicU8);

impl Codec for Masked {
    fn to_disk(&self, _key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        let mask = self.0.load(Ordering::Relaxed);
        match *value == "refused" {
            true => Err(CodecError("this value is refused".to_owned())),
            false => Ok(std::iter::once(mask)
                .chain(value.iter().map(|byte| byte ^ mask))
                .collect()),
        }
    }

    fn from_disk(&self, _key: &str, value: &Bytes) -> Result<Bytes, CodecError> {
        let mask = self.0.load(Ordering::Relaxed);
        match value.split_first() {
            Some((found, rest)) if *found == mask => Ok(rest.iter().map(|byte| byte ^ mask).collect()),
            _ => Err(CodecError("another mask".to_owned())),
        }
    }
}

async fn open(directory: &Path, codec: &Arc<Masked>) -> Result<Arc<Embedded>, StoreError> {
    open_with_codec(directory, Options::default(), codec.clone()).await
}

async fn put(store: &Embedded, key: &str, value: &'static str) -> Result<(), StoreError> {
    let write = Write::Put {
        key: key.into(),
        value: Bytes::from_static(value.as_bytes()),
        ttl: None,
    };
    let transaction = Transaction {
        compares: Vec::new(),
        writes: vec![write],
    };
    store.commit(transaction).await.map(drop)
}

fn files_with(directory: &Path, text: &str) -> usize {
    let files = std::fs::read_dir(directory).unwrap();
    let contents = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let holds = |content: &Vec<u8>| content.windows(text.len()).any(|window| window == text.as_bytes());
    contents.filter(holds).count()
}

fn masked(mask: u8) -> Arc<Masked> {
    Arc::new(Masked(AtomicU8::new(mask)))
}

#[tokio::test]
async fn values_are_on_the_disk_as_the_codec_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let codec = masked(0x55);
    let store = open(directory.path(), &codec).await.unwrap();
    put(&store, "/a", "first value").await.unwrap();
    put(&store, "/a", "second value").await.unwrap();
    assert_eq!(store.snapshot().get("/a").unwrap().value, "second value");
    assert_eq!(
        store.snapshot_at(1).await.unwrap().get("/a").unwrap().value,
        "first value"
    );
    assert_eq!(files_with(directory.path(), " value"), 0, "in the log");
    store.compact(2).await.unwrap();
    assert_eq!(files_with(directory.path(), " value"), 0, "in the checkpoint");
    put(&store, "/b", "third value").await.unwrap();
    store.close().await;
    drop(store);

    let store = open(directory.path(), &codec).await.unwrap();
    assert_eq!(store.snapshot().get("/a").unwrap().value, "second value");
    assert_eq!(store.snapshot().get("/b").unwrap().value, "third value");
    store.close().await;
    drop(store);

    let error = open(directory.path(), &masked(0x11)).await.err().unwrap().to_string();
    assert!(error.contains("the value of /a: another mask"), "{error}");
    let store = open(directory.path(), &codec).await.unwrap();
    assert_eq!(store.snapshot().count(""), 2, "nothing was changed");
    store.close().await;
}

#[tokio::test]
async fn a_value_that_cannot_be_encoded_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &masked(0x55)).await.unwrap();
    put(&store, "/a", "before").await.unwrap();
    assert!(put(&store, "/a", "refused").await.is_err());
    assert_eq!(store.snapshot().get("/a").unwrap().value, "before");
    assert_eq!(store.snapshot().revision(), 1);
    put(&store, "/a", "after").await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_store_is_written_anew_when_the_codec_changes() {
    let directory = tempfile::tempdir().unwrap();
    let codec = masked(0x55);
    let store = open(directory.path(), &codec).await.unwrap();
    put(&store, "/a", "a value").await.unwrap();
    codec.0.store(0x11, Ordering::Relaxed);
    store.rewrite().await.unwrap();
    store.close().await;
    drop(store);

    // Nothing was written since, so that the checkpoint itself has to be replaced.
    let codec = masked(0x11);
    let store = open(directory.path(), &codec).await.unwrap();
    codec.0.store(0x22, Ordering::Relaxed);
    store.rewrite().await.unwrap();
    store.close().await;
    drop(store);
    let store = open(directory.path(), &masked(0x22)).await.unwrap();
    assert_eq!(store.snapshot().get("/a").unwrap().value, "a value");
    store.close().await;
}
