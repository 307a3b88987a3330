//! Pods that end while a driver is at work for them: nobody waits for a driver that hangs, for a pod that is deleted.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::volumes::DriverError;

#[derive(Default)]
pub struct Endings {
    uids: Mutex<BTreeSet<String>>,
    added: Notify,
}

impl Endings {
    /// The pod ends.
    pub fn add(&self, uid: &str) {
        self.uids.lock().insert(uid.to_owned());
        self.added.notify_waiters();
    }

    /// The pod's volumes are torn down.
    pub fn remove(&self, uid: &str) {
        self.uids.lock().remove(uid);
    }

    /// Waits for a call, unless the pod ends. Drivers are then asked to undo whatever came of it.
    pub async fn unless_ended<T, E: Into<DriverError>>(
        &self,
        uid: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, DriverError> {
        let ended = async {
            loop {
                let added = self.added.notified();
                tokio::pin!(added);
                // Registered before it is looked, so that nothing is missed between the two.
                added.as_mut().enable();
                if self.uids.lock().contains(uid) {
                    return;
                }
                added.await;
            }
        };
        tokio::select! {
            done = call => done.map_err(Into::into),
            () = ended => Err(DriverError::PodEnds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_for_a_pod_that_ends() {
        let endings = Endings::default();
        let hangs = || std::future::pending::<Result<(), DriverError>>();
        let other = async {
            tokio::task::yield_now().await;
            Ok::<(), DriverError>(())
        };
        let (first, ()) = tokio::join!(endings.unless_ended("a", hangs()), async {
            tokio::task::yield_now().await;
            endings.add("a");
        });
        assert!(matches!(first, Err(DriverError::PodEnds)));
        assert!(matches!(
            endings.unless_ended("a", hangs()).await,
            Err(DriverError::PodEnds)
        ));
        assert!(endings.unless_ended("b", other).await.is_ok());
        endings.remove("a");
        assert!(endings.uids.lock().is_empty());
    }
}
