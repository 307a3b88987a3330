//! How a controller says what it watches.

use std::sync::Arc;

use api::{ObjectMeta, Resource};
use client::{Cache, Client, Freshness, Key, Object, Selection, WorkQueue};

use super::row::{Row, Shared};
use crate::settings::Settings;

/// Handed to a controller when it starts.
pub struct Setup<'a> {
    shared: &'a Arc<Shared>,
    queue: Arc<WorkQueue<Key>>,
    caches: Vec<WatchedCache>,
}

pub struct WatchedCache {
    pub resource: &'static Resource,
    pub freshness: Arc<dyn Freshness>,
}

impl<'a> Setup<'a> {
    pub(super) fn new(row: &Row, shared: &'a Arc<Shared>) -> Setup<'a> {
        Setup {
            shared,
            queue: Arc::new(WorkQueue::named(row.queue, &shared.queues)),
            caches: Vec::new(),
        }
    }

    /// For reads that no cache can answer.
    pub fn client(&self) -> Client {
        self.shared.client.clone()
    }

    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.options
    }

    pub fn queue(&self) -> Arc<WorkQueue<Key>> {
        self.queue.clone()
    }

    /// The shared cache of a resource. Planning starts when it is complete, and waits for it after writes.
    pub fn cache<T: Object>(&mut self, resource: &'static Resource) -> Arc<Cache<T>> {
        self.selected(resource, Selection::default())
    }

    pub fn selected<T: Object>(&mut self, resource: &'static Resource, selection: Selection) -> Arc<Cache<T>> {
        let cache = self.shared.informers.selected::<T>(resource, selection);
        self.caches.push(WatchedCache {
            resource,
            freshness: cache.clone(),
        });
        cache
    }

    /// Plans the keys that `keys` names for an object whenever it changes, for its old and for its new state.
    pub fn watch<T: Object>(&self, cache: &Cache<T>, keys: impl Fn(&T) -> Vec<Key> + Send + Sync + 'static) {
        let queue = self.queue.clone();
        cache.on_change(move |old, new| {
            let states = old.into_iter().chain(new);
            states.flat_map(|object| keys(object)).for_each(|key| queue.add(key));
        });
    }

    /// Plans an object itself whenever it changes.
    pub fn watch_own<T: Object>(&self, cache: &Cache<T>) {
        self.watch(cache, |object| vec![object.key()]);
    }

    pub(super) fn finish(self) -> (Arc<WorkQueue<Key>>, Vec<WatchedCache>) {
        (self.queue, self.caches)
    }
}

/// The key of an object's controller if that is of `kind` in the same namespace.
pub fn controller_key(metadata: &ObjectMeta, kind: &str) -> Vec<Key> {
    let owner = metadata.controller().filter(|owner| owner.kind == kind);
    owner
        .map(|owner| Key::new(&metadata.namespace, &owner.name))
        .into_iter()
        .collect()
}
