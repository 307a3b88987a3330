//! Objects as a component sees them: a map of projections with indexes, kept current by a reflector.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::ObjectMeta;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::Key;

/// A projection of an object: only the fields that its reader needs.
pub trait Object: Send + Sync + 'static {
    fn decode(object: &Bytes) -> Result<Self, serde_json::Error>
    where
        Self: Sized;
    fn namespace(&self) -> &str;
    fn name(&self) -> &str;
    fn resource_version(&self) -> &str;

    fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }
}

/// A projection that holds the common metadata; any such type is an [`Object`].
pub trait WithMetadata: DeserializeOwned + Send + Sync + 'static {
    fn metadata(&self) -> &ObjectMeta;
}

impl<T: WithMetadata> Object for T {
    fn decode(object: &Bytes) -> Result<T, serde_json::Error> {
        serde_json::from_slice(object)
    }

    fn namespace(&self) -> &str {
        &self.metadata().namespace
    }

    fn name(&self) -> &str {
        &self.metadata().name
    }

    fn resource_version(&self) -> &str {
        &self.metadata().resource_version
    }
}

/// The values under which an index files an object.
pub type IndexFunction<T> = fn(&T) -> Vec<String>;

type Subscriber<T> = Box<dyn Fn(Option<&Arc<T>>, Option<&Arc<T>>) + Send + Sync>;

/// All objects of one resource and selection, by key and by named indexes.
///
/// Changes are made by one writer at a time and told to subscribers in their order; readers never wait for
/// subscribers.
pub struct Cache<T> {
    state: RwLock<State<T>>,
    /// Also held while a change is made and told, so that a new subscriber misses none and sees none twice.
    subscribers: Mutex<Vec<Subscriber<T>>>,
    is_synced: AtomicBool,
    /// Wakes those who wait in the order in which they came; a channel of tokio's would choose one by its own dice.
    now_synced: Notify,
    /// Everything up to this revision has been applied.
    revision: AtomicU64,
}

/// How far a cache has come, whatever it holds.
#[async_trait]
pub trait Freshness: Send + Sync {
    /// Returns once the cache holds everything that the first list returned.
    async fn synced(&self);
    /// All changes up to this revision are in the cache.
    fn revision(&self) -> u64;
    /// The revision of the cached object with this key, if there is one.
    fn revision_of(&self, key: &str) -> Option<String>;
}

struct State<T> {
    objects: BTreeMap<Key, Arc<T>>,
    indexes: HashMap<&'static str, Index<T>>,
}

struct Index<T> {
    function: IndexFunction<T>,
    keys: HashMap<String, BTreeSet<Key>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache {
            state: RwLock::new(State {
                objects: BTreeMap::new(),
                indexes: HashMap::new(),
            }),
            subscribers: Mutex::new(Vec::new()),
            is_synced: AtomicBool::new(false),
            now_synced: Notify::new(),
            revision: AtomicU64::new(0),
        }
    }
}

impl<T: Object> Cache<T> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        if namespace.is_empty() {
            return self.get_key(name);
        }
        self.get_key(&format!("{namespace}/{name}"))
    }

    /// The object with this key in its text form (`namespace/name`).
    pub fn get_key(&self, key: &str) -> Option<Arc<T>> {
        self.state.read().objects.get(key).cloned()
    }

    /// All objects of a namespace, by name; all objects of all when it is empty.
    pub fn list(&self, namespace: &str) -> Vec<Arc<T>> {
        if namespace.is_empty() {
            return self.all();
        }
        let prefix = format!("{namespace}/");
        let state = self.state.read();
        let from = state
            .objects
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
        from.take_while(|(key, _)| key.as_str().starts_with(&prefix))
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub fn all(&self) -> Vec<Arc<T>> {
        self.state.read().objects.values().cloned().collect()
    }

    /// The objects that the named index files under `value`, by key. Empty when there is no such index.
    pub fn by(&self, index: &str, value: &str) -> Vec<Arc<T>> {
        let state = self.state.read();
        let keys = state.indexes.get(index).and_then(|index| index.keys.get(value));
        let objects = keys.into_iter().flatten().filter_map(|key| state.objects.get(key));
        objects.cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an index; one that exists under this name already is kept.
    pub fn add_index(&self, name: &'static str, function: IndexFunction<T>) {
        let mut guard = self.state.write();
        let state = &mut *guard;
        state.indexes.entry(name).or_insert_with(|| {
            let keys = HashMap::new();
            let mut index = Index { function, keys };
            for (key, object) in &state.objects {
                index.insert(key, object);
            }
            index
        });
    }

    /// Calls `subscriber` with (old, new) for every change from now on, after calling it for every object that is
    /// there already. It may read this cache but must not change it or subscribe to it.
    pub fn on_change(&self, subscriber: impl Fn(Option<&Arc<T>>, Option<&Arc<T>>) + Send + Sync + 'static) {
        let mut subscribers = self.subscribers.lock();
        for object in self.all() {
            subscriber(None, Some(&object));
        }
        subscribers.push(Box::new(subscriber));
    }

    /// Returns once the cache holds everything that the first list returned.
    pub async fn synced(&self) {
        // Made before the question, it misses no answer.
        let now_synced = self.now_synced.notified();
        if !self.is_synced() {
            now_synced.await;
        }
    }

    pub fn is_synced(&self) -> bool {
        self.is_synced.load(Ordering::Acquire)
    }

    pub fn insert(&self, object: T) {
        let subscribers = self.subscribers.lock();
        let revision = object.resource_version().to_owned();
        self.put(&subscribers, object, &revision);
    }

    /// Removes an object; `revision` is that of its deletion.
    pub fn remove(&self, key: &str, revision: &str) {
        let subscribers = self.subscribers.lock();
        self.take(&subscribers, key, revision);
    }

    /// Everything up to this revision has been applied; revisions that are not numbers are ignored.
    pub fn reached(&self, revision: &str) {
        if let Ok(revision) = revision.parse() {
            self.revision.fetch_max(revision, Ordering::AcqRel);
        }
    }

    /// Makes `objects` the whole content, as it was at `revision`; from then on the cache counts as synced.
    pub fn replace(&self, objects: Vec<T>, revision: &str) {
        let subscribers = self.subscribers.lock();
        let kept: BTreeSet<Key> = objects.iter().map(T::key).collect();
        let keys = || self.state.read().objects.keys().cloned().collect::<Vec<_>>();
        for key in keys().into_iter().filter(|key| !kept.contains(key)) {
            self.take(&subscribers, key.as_str(), "");
        }
        for object in objects {
            let known = self.get_key(object.key().as_str());
            if known.is_none_or(|known| known.resource_version() != object.resource_version()) {
                self.put(&subscribers, object, "");
            }
        }
        self.reached(revision);
        self.is_synced.store(true, Ordering::Release);
        self.now_synced.notify_waiters();
    }

    fn put(&self, subscribers: &[Subscriber<T>], object: T, revision: &str) {
        let (key, object) = (object.key(), Arc::new(object));
        let old = {
            let mut guard = self.state.write();
            let state = &mut *guard;
            let old = state.objects.insert(key.clone(), object.clone());
            for index in state.indexes.values_mut() {
                index.change(&key, old.as_deref(), &object);
            }
            old
        };
        // Before subscribers are told: they may ask whether the cache has caught up with a write of theirs.
        self.reached(revision);
        for subscriber in subscribers {
            subscriber(old.as_ref(), Some(&object));
        }
    }

    fn take(&self, subscribers: &[Subscriber<T>], key: &str, revision: &str) {
        let old = {
            let mut guard = self.state.write();
            let state = &mut *guard;
            let Some((key, old)) = state.objects.remove_entry(key) else {
                return;
            };
            for index in state.indexes.values_mut() {
                index.remove(&key, &old);
            }
            old
        };
        self.reached(revision);
        for subscriber in subscribers {
            subscriber(Some(&old), None);
        }
    }
}

#[async_trait]
impl<T: Object> Freshness for Cache<T> {
    async fn synced(&self) {
        Cache::synced(self).await;
    }

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    fn revision_of(&self, key: &str) -> Option<String> {
        self.get_key(key).map(|object| object.resource_version().to_owned())
    }
}

impl<T> Index<T> {
    fn insert(&mut self, key: &Key, object: &T) {
        for value in (self.function)(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn change(&mut self, key: &Key, old: Option<&T>, new: &T) {
        let before = old.map(self.function).unwrap_or_default();
        let after = (self.function)(new);
        if before == after {
            return;
        }
        self.forget(key, before);
        for value in after {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &T) {
        let values = (self.function)(object);
        self.forget(key, values);
    }

    fn forget(&mut self, key: &Key, values: Vec<String>) {
        for value in values {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Thing {
        metadata: ObjectMeta,
    }

    impl WithMetadata for Thing {
        fn metadata(&self) -> &ObjectMeta {
            &self.metadata
        }
    }

    fn thing(namespace: &str, name: &str, app: &str, revision: u64) -> Thing {
        let text = serde_json::json!({"metadata": {
            "namespace": namespace, "name": name, "labels": {"app": app}, "resourceVersion": revision.to_string(),
        }});
        Thing::decode(&Bytes::from(text.to_string())).unwrap()
    }

    fn names(things: Vec<Arc<Thing>>) -> Vec<String> {
        things.iter().map(|thing| thing.key().to_string()).collect()
    }

    #[test]
    fn objects_are_found_by_namespace_and_by_index() {
        let cache = Cache::default();
        cache.insert(thing("a", "one", "web", 1));
        cache.add_index("app", |thing: &Thing| thing.metadata.labels.values().cloned().collect());
        cache.insert(thing("a", "two", "web", 2));
        cache.insert(thing("ab", "three", "db", 3));
        assert_eq!(names(cache.list("a")), ["a/one", "a/two"]);
        assert_eq!(names(cache.by("app", "web")), ["a/one", "a/two"]);

        cache.insert(thing("a", "one", "db", 4));
        cache.remove("a/two", "5");
        assert_eq!(names(cache.by("app", "web")), [""; 0]);
        assert_eq!(names(cache.by("app", "db")), ["a/one", "ab/three"]);
    }

    #[test]
    fn subscribers_hear_of_what_is_there_and_of_every_real_change() {
        let cache = Cache::default();
        cache.insert(thing("a", "one", "web", 1));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        let revision =
            |thing: Option<&Arc<Thing>>| thing.map_or("-".to_owned(), |thing| thing.resource_version().into());
        cache.on_change(move |old, new| sink.lock().push(format!("{}→{}", revision(old), revision(new))));

        // A relist tells only what differs.
        cache.replace(vec![thing("a", "one", "web", 1), thing("a", "two", "web", 2)], "2");
        cache.replace(vec![thing("a", "two", "web", 3)], "4");
        assert_eq!(*heard.lock(), ["-→1", "-→2", "1→-", "2→3"]);
        assert!(cache.is_synced());
        assert_eq!(cache.revision(), 4);
    }
}
