//! One lock for each volume, for as long as somebody wants it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

#[derive(Default)]
pub struct VolumeLocks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl VolumeLocks {
    /// Waits until nobody else works on the volume.
    pub async fn lock(&self, volume: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            // What only the table holds, nobody waits for.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(volume.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn locks_are_per_volume_and_do_not_pile_up() {
        let locks = VolumeLocks::default();
        let first = locks.lock("a").await;
        let _other = locks.lock("b").await;
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), locks.lock("a")).await;
        assert!(waiting.is_err());
        drop(first);
        let _again = locks.lock("a").await;
        for name in 0..100 {
            drop(locks.lock(&name.to_string()).await);
        }
        assert!(locks.0.lock().len() <= 3);
    }
}
