//! Whether the store is well, for the health checks of whoever serves it.

use std::time::Duration;

use store::{Store, StoreError};

/// How long the store may take to confirm that it is there.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// A store that can be read but not written to fails its check: leases run out while everything looks well.
pub(crate) async fn check_store(store: &dyn Store) -> Result<(), String> {
    match tokio::time::timeout(STORE_PATIENCE, store.latest()).await {
        Err(_) => return Err(format!("the store did not answer within {STORE_PATIENCE:?}")),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(_)) => (),
    }
    match store.check_writable() {
        Ok(()) | Err(StoreError::QuotaExceeded) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn check_quota(store: &dyn Store) -> Result<(), String> {
    match store.check_writable() {
        Err(error @ StoreError::QuotaExceeded) => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use store::{EventStream, Outcome, Revision, Snapshot, Transaction};

    use super::*;

    /// A store in one of the states that a real one gets into.
    enum Ill {
        ReadOnly,
        Full,
        Silent,
        Away,
    }

    fn unavailable() -> StoreError {
        StoreError::Unavailable("etcd is away".into())
    }

    #[async_trait]
    impl Store for Ill {
        fn snapshot(&self) -> Arc<dyn Snapshot> {
            store::memory::open().snapshot()
        }

        async fn latest(&self) -> Result<Arc<dyn Snapshot>, StoreError> {
            match self {
                Ill::Silent => std::future::pending().await,
                Ill::Away => Err(unavailable()),
                _ => Ok(self.snapshot()),
            }
        }

        async fn snapshot_at(&self, _: Revision) -> Result<Arc<dyn Snapshot>, StoreError> {
            Err(unavailable())
        }

        async fn commit(&self, _: Transaction) -> Result<Outcome, StoreError> {
            panic!("a probe must not write");
        }

        async fn watch(&self, _: Revision) -> Result<Box<dyn EventStream>, StoreError> {
            Err(unavailable())
        }

        async fn compact(&self, _: Revision) -> Result<(), StoreError> {
            Ok(())
        }

        fn check_writable(&self) -> Result<(), StoreError> {
            match self {
                Ill::ReadOnly => Err(StoreError::ReadOnly("no storage space".into())),
                Ill::Full => Err(StoreError::QuotaExceeded),
                _ => Ok(()),
            }
        }

        async fn close(&self) {}
    }

    #[tokio::test]
    async fn the_store_check_says_why_the_store_is_ill() {
        let why = |ill: Ill| async move { check_store(&ill).await.err().unwrap_or_default() };
        assert_eq!(why(Ill::ReadOnly).await, "store is read-only: no storage space");
        assert_eq!(why(Ill::Silent).await, "the store did not answer within 2s");
        assert_eq!(why(Ill::Away).await, "store unavailable: etcd is away");
        assert_eq!(why(Ill::Full).await, "", "a full quota is told by a check of its own");
        let exceeded = check_quota(&Ill::Full).err().unwrap_or_default();
        assert_eq!(exceeded, "etcdserver: mvcc: database space exceeded");
        assert!(check_quota(&Ill::ReadOnly).is_ok());
    }
}
