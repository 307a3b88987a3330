//! Backups are taken from one store and restored to another.

use bytes::Bytes;
use store::codec::Identity;
use store::{Outcome, Store, StoreError, Transaction, Write, backup, embedded, memory};

async fn filled() -> Vec<u8> {
    let store = memory::open();
    for number in 0..1000u32 {
        let write = Write::Put {
            key: format!("/registry/things/{number:04}").into(),
            value: Bytes::from(format!("{{\"number\":{number}}}").repeat(40)),
            ttl: None,
        };
        let transaction = Transaction {
            compares: Vec::new(),
            writes: vec![write],
        };
        store.commit(transaction).await.unwrap();
    }
    let mut file = Vec::new();
    let entries = backup::write(&*store.snapshot(), &Identity, &mut file).unwrap();
    assert_eq!(entries, 1000);
    file
}

#[tokio::test]
async fn a_restored_store_has_every_entry_at_its_revision_and_goes_on_from_there() {
    let file = filled().await;
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(embedded::restore(&mut &file[..], directory.path()).unwrap(), 1000);
    let store = embedded::open(directory.path(), embedded::Options::default())
        .await
        .unwrap();
    let snapshot = store.snapshot();
    assert_eq!((snapshot.revision(), snapshot.count("")), (1000, 1000));
    assert_eq!(snapshot.get("/registry/things/0041").unwrap().mod_revision, 42);
    let write = Write::Delete {
        key: "/registry/things/0000".into(),
    };
    let outcome = store
        .commit(Transaction {
            compares: Vec::new(),
            writes: vec![write],
        })
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Committed { revision: 1001 });
    store.close().await;
}

#[tokio::test]
async fn a_store_that_has_something_is_never_restored_over() {
    let file = filled().await;
    let directory = tempfile::tempdir().unwrap();
    embedded::restore(&mut &file[..], directory.path()).unwrap();
    let again = embedded::restore(&mut &file[..], directory.path()).unwrap_err();
    assert!(again.to_string().contains("holds a store already"), "{again}");
}

#[tokio::test]
async fn a_backup_that_breaks_off_or_was_changed_restores_nothing() {
    let file = filled().await;
    for length in [0, 5, 20, file.len() / 2, file.len() - 1] {
        refused(&file[..length]);
    }
    for at in (0..file.len()).step_by(file.len() / 50) {
        let mut changed = file.clone();
        changed[at] ^= 0x10;
        refused(&changed);
    }
}

fn refused(file: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let error = embedded::restore(&mut &file[..], directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );
}
