//! The driver: turns changes into keys, keys into plans, and plans into calls, for any controller.
//!
//! A key is planned by one worker at a time, from caches that hold everything this key's last plan wrote; a plan that
//! fails is made again after a growing pause. A planner that panics fails only its key.

mod awaits;
mod execute;
mod row;
mod setup;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use client::when::Moment;
use client::{Key, WorkQueue};
use futures_util::FutureExt;
use parking_lot::Mutex;

use awaits::Awaits;
use execute::Executor;
pub use row::{Attempt, Reconcile, Row, Shared};
pub use setup::{Setup, controller_key};

/// How long a plan waits for the caches to show what the previous one wrote before it is made all the same.
const MAX_AWAIT: Duration = Duration::from_secs(300);

struct Driver {
    name: &'static str,
    reconcile: Box<dyn Reconcile>,
    queue: Arc<WorkQueue<Key>>,
    executor: Executor,
    awaits: Mutex<HashMap<Key, Awaits>>,
    errors: Mutex<HashMap<Key, String>>,
}

/// Runs one controller until the future is dropped.
pub async fn drive(row: &'static Row, shared: Arc<Shared>) {
    let mut setup = Setup::new(row, &shared);
    let reconcile = (row.start)(&mut setup);
    let (queue, caches) = setup.finish();
    for cache in &caches {
        cache.freshness.synced().await;
    }
    let driver = Driver {
        name: row.name,
        reconcile,
        queue,
        executor: Executor {
            client: shared.client.clone(),
            reader: shared.informers.client().clone(),
            recorder: shared.recorder.for_component(&event_source(row.name)),
            caches,
        },
        awaits: Mutex::default(),
        errors: Mutex::default(),
    };
    tracing::debug!(controller = row.name, "running");
    let workers = (0..row.workers).map(|_| driver.work());
    futures_util::future::join_all(workers).await;
}

/// Controllers whose events upstream signs with another name than the controller's own.
pub const EVENT_SOURCES: &[(&str, &str)] = &[
    ("disruption", "controllermanager"),
    ("ephemeral-volume", "ephemeral_volume"),
    ("horizontal-pod-autoscaler", "horizontal-pod-autoscaler"),
    ("local-volume-provisioner", "karve.dev/local"),
    ("node-ipam", "cidrAllocator"),
    ("node-lifecycle", "node-controller"),
    ("persistentvolume-attach-detach", "attachdetach-controller"),
    ("persistentvolume-binder", "persistentvolume-controller"),
    ("persistentvolume-expander", "volume_expand"),
];

/// What the events of a controller name as their source.
fn event_source(controller: &str) -> String {
    let known = EVENT_SOURCES.iter().find(|(name, _)| *name == controller);
    known.map_or_else(
        || format!("{controller}-controller"),
        |(_, source)| (*source).to_owned(),
    )
}

impl Driver {
    async fn work(&self) {
        loop {
            let key = self.queue.next().await;
            let worked = AssertUnwindSafe(self.reconcile(&key)).catch_unwind().await;
            if worked.is_err() {
                tracing::error!(controller = self.name, %key, "the planner panicked; its key is tried again later");
                self.queue.retry(key.clone());
            }
            self.queue.done(&key);
        }
    }

    async fn reconcile(&self, key: &Key) {
        if let Some(pause) = self.pause(key) {
            return self.queue.add_after(key.clone(), pause);
        }
        let attempt = Attempt {
            now: Moment::now(),
            failures: self.queue.failures(key),
            error: self.errors.lock().get(key).cloned(),
        };
        let plan = match self.reconcile.plan(key, &attempt).await {
            Ok(plan) => plan,
            Err(error) => return self.failed(key, &error, "could not be planned"),
        };
        let requeue = plan.requeue;
        let outcome = self.executor.carry_out(plan).await;
        if !outcome.awaits.is_empty() {
            self.awaits.lock().insert(key.clone(), Awaits::new(outcome.awaits));
        }
        match outcome.error {
            Some(error) => self.failed(key, &error, "could not be carried out"),
            None => self.succeeded(key),
        }
        if let Some(delay) = requeue {
            self.queue.add_after(key.clone(), delay);
        }
    }

    /// How long to wait for the caches to catch up with what was last written for this key.
    fn pause(&self, key: &Key) -> Option<Duration> {
        let mut awaits = self.awaits.lock();
        let waiting = awaits.get_mut(key)?;
        let pause = waiting.pause(&self.executor.caches);
        if pause.is_some() && waiting.age() > MAX_AWAIT {
            tracing::warn!(controller = self.name, %key, "the caches did not show the last writes in time");
        } else if pause.is_some() {
            return pause;
        }
        awaits.remove(key);
        None
    }

    fn failed(&self, key: &Key, error: &client::Error, what: &'static str) {
        if error.is_namespace_terminating() {
            // Whatever was to be created is not wanted any more.
            return self.queue.forget(key);
        }
        if error.is_conflict() || error.is_not_found() {
            tracing::debug!(controller = self.name, %key, %error, "a plan {what}");
        } else {
            tracing::warn!(controller = self.name, %key, %error, "a plan {what}");
        }
        if !error.is_conflict() {
            self.errors.lock().insert(key.clone(), error.to_string());
        }
        self.queue.retry(key.clone());
    }

    fn succeeded(&self, key: &Key) {
        self.queue.forget(key);
        // The plan that has just succeeded was made knowing of a failure; the next one need not be.
        if self.errors.lock().remove(key).is_some() {
            self.queue.add(key.clone());
        }
    }
}
