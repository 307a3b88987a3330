//! Locks by namespace, for writes that change a shared object of their namespace, such as a ResourceQuota.

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::Mutex;

/// How many namespaces are written to at a time; namespaces beyond that share locks.
const LOCKS: usize = 64;

/// Serializes requests that would change the same companions. The conditions of their transactions are what makes them
/// safe; without locks most of them would conflict and be retried.
pub struct NamespaceLocks(Vec<Mutex<()>>);

impl Default for NamespaceLocks {
    fn default() -> NamespaceLocks {
        NamespaceLocks((0..LOCKS).map(|_| Mutex::new(())).collect())
    }
}

impl NamespaceLocks {
    pub(crate) fn lock_for(&self, namespace: &str) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        let index = usize::try_from(hasher.finish()).unwrap_or(0) % LOCKS;
        &self.0[index]
    }
}
