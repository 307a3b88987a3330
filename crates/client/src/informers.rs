//! Caches that the parts of a component share: one reflector per resource, selection and projection.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use api::Resource;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{Cache, Client, Object, Reflector, Selection};

type Id = (&'static str, &'static str, &'static str, Selection, TypeId);

/// Hands out caches and keeps them current. Dropping it stops all of its reflectors.
pub struct Informers {
    client: Client,
    running: Mutex<HashMap<Id, Running>>,
}

struct Running {
    cache: Arc<dyn Any + Send + Sync>,
    task: JoinHandle<()>,
}

impl Informers {
    pub fn new(client: Client) -> Informers {
        Informers {
            client,
            running: Mutex::new(HashMap::new()),
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The cache of all objects of a resource as `T`; starts following them if nobody does yet.
    pub fn cache<T: Object>(&self, resource: &'static Resource) -> Arc<Cache<T>> {
        self.selected(resource, Selection::default())
    }

    /// Like [`Informers::cache`], of some objects only.
    pub fn selected<T: Object>(&self, resource: &'static Resource, selection: Selection) -> Arc<Cache<T>> {
        let id = (
            resource.group,
            resource.version,
            resource.plural,
            selection.clone(),
            TypeId::of::<T>(),
        );
        let mut running = self.running.lock();
        if let Some(known) = running.get(&id)
            && let Ok(cache) = known.cache.clone().downcast::<Cache<T>>()
        {
            return cache;
        }
        let cache = Arc::new(Cache::default());
        let reflector = Reflector::new(self.client.resource(resource), selection, cache.clone());
        let task = tokio::spawn(reflector.run());
        let entry = Running {
            cache: cache.clone(),
            task,
        };
        running.insert(id, entry);
        cache
    }
}

impl Drop for Informers {
    fn drop(&mut self) {
        for running in self.running.get_mut().values() {
            running.task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, THINGS, Thing};

    #[tokio::test]
    async fn the_same_question_is_asked_only_once() {
        let fake = Fake::default();
        fake.put("a", "one", "x");
        let informers = Informers::new(fake.client());
        let first = informers.cache::<Thing>(&THINGS);
        let second = informers.cache::<Thing>(&THINGS);
        assert!(Arc::ptr_eq(&first, &second));
        let other = informers.selected::<Thing>(
            &THINGS,
            Selection {
                namespace: "b".to_owned(),
                ..Selection::default()
            },
        );
        assert!(!Arc::ptr_eq(&first, &other));
        first.synced().await;
        assert_eq!(first.len(), 1);
    }
}
