//! Keeps the ConfigMaps and Secrets that this node's pods refer to current, one watch per object, and says which pods
//! a change concerns. A kubelet may not list what its pods do not use.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Cache, Client, Object, Reflector, Selection};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::AbortHandle;

use super::{Data, Found, Kind};

/// How long a pod waits for an object to be listed before its start fails and is tried again.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

type Id = (Kind, String, String);
/// Told the UID of every pod that a changed object concerns.
pub type Notify = Arc<dyn Fn(&str) + Send + Sync>;

/// The API did not say in time what an object is like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to sync {kind} cache: timed out waiting for {namespace}/{name}")]
pub struct NotSynced {
    kind: &'static str,
    namespace: String,
    name: String,
}

pub struct Follower {
    client: Client,
    notify: Notify,
    followed: Mutex<HashMap<Id, Followed>>,
}

struct Followed {
    source: Source,
    task: AbortHandle,
    users: Arc<Mutex<HashSet<String>>>,
}

#[derive(Clone)]
enum Source {
    ConfigMap(Arc<Cache<Stored<false>>>),
    Secret(Arc<Cache<Stored<true>>>),
}

/// An object with its data decoded.
struct Stored<const SECRET: bool> {
    metadata: Metadata,
    data: Arc<Data>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    resource_version: String,
}

impl<const SECRET: bool> Object for Stored<SECRET> {
    fn decode(object: &Bytes) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Head {
            metadata: Metadata,
        }
        let head: Head = serde_json::from_slice(object)?;
        let kind = if SECRET { Kind::Secret } else { Kind::ConfigMap };
        Ok(Stored {
            metadata: head.metadata,
            data: Arc::new(Data::decode(kind, object)?),
        })
    }

    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Follower {
    pub fn new(client: Client, notify: Notify) -> Follower {
        Follower {
            client,
            notify,
            followed: Mutex::new(HashMap::new()),
        }
    }

    /// Follows exactly what a pod refers to now.
    pub fn set(&self, uid: &str, namespace: &str, names: BTreeSet<(Kind, String)>) {
        let wanted: HashSet<Id> = names
            .into_iter()
            .map(|(kind, name)| (kind, namespace.to_owned(), name))
            .collect();
        let mut followed = self.followed.lock();
        followed.retain(|id, entry| {
            let mut users = entry.users.lock();
            if !wanted.contains(id) {
                users.remove(uid);
            }
            let used = !users.is_empty();
            if !used {
                entry.task.abort();
            }
            used
        });
        for id in wanted {
            let entry = followed.entry(id).or_insert_with_key(|id| self.follow(id));
            entry.users.lock().insert(uid.to_owned());
        }
    }

    pub fn forget(&self, uid: &str) {
        self.set(uid, "", BTreeSet::new());
    }

    /// The objects of these names, which the pod must have been [`set`](Follower::set) to refer to.
    pub async fn find(&self, namespace: &str, names: BTreeSet<(Kind, String)>) -> Result<Found, NotSynced> {
        let mut found = Found::default();
        for (kind, name) in names {
            let id = (kind, namespace.to_owned(), name.clone());
            let source = self.followed.lock().get(&id).map(|entry| entry.source.clone());
            let data = match source {
                Some(source) => source.get(namespace, &name).await,
                None => Ok(None),
            };
            let data = data.map_err(|()| NotSynced {
                kind: kind.title(),
                namespace: namespace.to_owned(),
                name: name.clone(),
            })?;
            found.objects.insert((kind, name), data);
        }
        Ok(found)
    }

    fn follow(&self, (kind, namespace, name): &Id) -> Followed {
        let users = Arc::new(Mutex::new(HashSet::new()));
        let (source, task) = match kind {
            Kind::ConfigMap => {
                let (cache, task) = self.reflect(&api::kinds::config_map::CONFIG_MAP, namespace, name, &users);
                (Source::ConfigMap(cache), task)
            }
            Kind::Secret => {
                let (cache, task) = self.reflect(&api::kinds::secret::SECRET, namespace, name, &users);
                (Source::Secret(cache), task)
            }
        };
        Followed { source, task, users }
    }

    fn reflect<T: Object>(
        &self,
        resource: &'static api::Resource,
        namespace: &str,
        name: &str,
        users: &Arc<Mutex<HashSet<String>>>,
    ) -> (Arc<Cache<T>>, AbortHandle) {
        let cache = Arc::new(Cache::<T>::default());
        let (users, notify) = (users.clone(), self.notify.clone());
        // Weakly, for the cache owns its subscribers.
        let seen = Arc::downgrade(&cache);
        cache.on_change(move |_, _| {
            // The first list is waited for by those who need it.
            if seen.upgrade().is_some_and(|cache| cache.is_synced()) {
                let users: Vec<String> = users.lock().iter().cloned().collect();
                users.iter().for_each(|uid| notify(uid));
            }
        });
        let selection = Selection {
            namespace: namespace.to_owned(),
            field_selector: format!("metadata.name={name}"),
            ..Selection::default()
        };
        let reflector = Reflector::new(self.client.resource(resource), selection, cache.clone());
        (cache, tokio::spawn(reflector.run()).abort_handle())
    }
}

impl Source {
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<Data>>, ()> {
        match self {
            Source::ConfigMap(cache) => read(cache, namespace, name).await,
            Source::Secret(cache) => read(cache, namespace, name).await,
        }
    }
}

async fn read<const SECRET: bool>(
    cache: &Cache<Stored<SECRET>>,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<Data>>, ()> {
    tokio::time::timeout(LIST_TIMEOUT, cache.synced())
        .await
        .map_err(|_| ())?;
    Ok(cache.get(namespace, name).map(|object| object.data.clone()))
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.followed.lock().values().for_each(|entry| entry.task.abort());
    }
}
