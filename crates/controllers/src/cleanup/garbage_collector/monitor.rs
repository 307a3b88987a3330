//! Following the metadata of every deletable resource into the graph.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{ObjectMeta, OwnerReference, Resource, Verb};
use bytes::Bytes;
use client::{Cache, Client, Key, Object, Reflector, Selection, WorkQueue};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use tokio::task::AbortHandle;

use super::graph::{Graph, Node};

/// How often it is checked which resources there are.
const REDISCOVER: Duration = Duration::from_secs(30);
/// How soon that is tried again after it failed.
const RETRY: Duration = Duration::from_secs(1);

/// Resources that are too short-lived to own anything or to be owned.
const IGNORED: &[(&str, &str)] = &[("", "events"), ("events.k8s.io", "events")];

/// Stops following when it is dropped.
pub struct Monitor {
    resources: Arc<RwLock<Vec<&'static Resource>>>,
    task: AbortHandle,
}

/// What the graph needs of an object, and nothing more.
#[derive(Default)]
struct Meta {
    metadata: ObjectMeta,
}

struct Follower {
    client: Client,
    graph: Arc<Mutex<Graph>>,
    queue: Arc<WorkQueue<Key>>,
    running: BTreeMap<(&'static str, &'static str), Running>,
}

struct Running {
    resource: &'static Resource,
    task: AbortHandle,
}

impl Monitor {
    pub fn start(client: Client, graph: Arc<Mutex<Graph>>, queue: Arc<WorkQueue<Key>>) -> Monitor {
        let resources: Arc<RwLock<Vec<&'static Resource>>> = Arc::default();
        let known = resources.clone();
        let mut follower = Follower {
            client,
            graph,
            queue,
            running: BTreeMap::new(),
        };
        let task = tokio::spawn(async move {
            loop {
                let pause = match follower.client.discover().await {
                    Ok(found) => {
                        *known.write() = found.clone();
                        follower.follow(&found);
                        REDISCOVER
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the garbage collector could not find out which resources there are");
                        RETRY
                    }
                };
                tokio::time::sleep(pause).await;
            }
        });
        Monitor {
            resources,
            task: task.abort_handle(),
        }
    }

    /// One that follows nothing.
    #[cfg(test)]
    pub fn of_resources(resources: &[&'static Resource]) -> Monitor {
        Monitor {
            resources: Arc::new(RwLock::new(resources.to_vec())),
            task: tokio::spawn(async {}).abort_handle(),
        }
    }

    /// The resource of a kind, in whichever version it is followed.
    pub fn resource(&self, api_version: &str, kind: &str) -> Option<&'static Resource> {
        let group = match api_version.split_once('/') {
            // No version has a slash in it.
            Some((_, version)) if version.contains('/') => return None,
            Some((group, _)) => group,
            None => "",
        };
        let resources = self.resources.read();
        let found = resources
            .iter()
            .find(|resource| resource.group == group && resource.kind == kind);
        found.copied()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    fn follow(&mut self, found: &[&'static Resource]) {
        let needs = [Verb::List, Verb::Watch, Verb::Delete];
        let wanted = |resource: &&&'static Resource| {
            needs.iter().all(|verb| resource.allows(*verb)) && !IGNORED.contains(&(resource.group, resource.plural))
        };
        let wanted: BTreeMap<_, _> = found
            .iter()
            .filter(wanted)
            .map(|resource| ((resource.group, resource.plural), *resource))
            .collect();
        let gone = |id: &&(&str, &str)| !wanted.contains_key(*id);
        let gone: Vec<_> = self.running.keys().filter(gone).copied().collect();
        for id in gone {
            if let Some(running) = self.running.remove(&id) {
                running.task.abort();
                let touched = self.graph.lock().remove_resource(running.resource);
                enqueue(&self.queue, touched);
            }
        }
        let mut is_any_new = false;
        for (id, resource) in wanted {
            if !self.running.contains_key(&id) {
                self.running.insert(id, self.start(resource));
                is_any_new = true;
            }
        }
        // An owner of a kind that nobody knew can be looked up now.
        if is_any_new {
            enqueue(&self.queue, self.graph.lock().unobserved());
        }
    }

    fn start(&self, resource: &'static Resource) -> Running {
        let cache: Arc<Cache<Meta>> = Arc::default();
        let (graph, queue) = (self.graph.clone(), self.queue.clone());
        cache.on_change(move |old, new| {
            let touched = match (old, new) {
                (Some(old), Some(new)) if old.metadata.uid != new.metadata.uid => {
                    let mut graph = graph.lock();
                    let mut touched = graph.remove(&old.metadata.uid);
                    touched.extend(graph.set(Node::of(resource, &new.metadata)));
                    touched
                }
                (_, Some(new)) => graph.lock().set(Node::of(resource, &new.metadata)),
                (Some(old), None) => graph.lock().remove(&old.metadata.uid),
                (None, None) => Vec::new(),
            };
            enqueue(&queue, touched);
        });
        let reflector = Reflector::new(self.client.resource(resource), Selection::default(), cache);
        Running {
            resource,
            task: tokio::spawn(reflector.run()).abort_handle(),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.task.abort());
    }
}

fn enqueue(queue: &WorkQueue<Key>, uids: Vec<String>) {
    uids.into_iter().for_each(|uid| queue.add(Key::new("", &uid)));
}

impl Object for Meta {
    fn decode(object: &Bytes) -> Result<Meta, serde_json::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: WireMeta,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct WireMeta {
            name: String,
            namespace: String,
            uid: String,
            resource_version: String,
            deletion_timestamp: Option<String>,
            owner_references: Vec<OwnerReference>,
            finalizers: Vec<String>,
        }
        let wire: Wire = serde_json::from_slice(object)?;
        Ok(Meta {
            metadata: ObjectMeta {
                name: wire.metadata.name,
                namespace: wire.metadata.namespace,
                uid: wire.metadata.uid,
                resource_version: wire.metadata.resource_version,
                deletion_timestamp: wire.metadata.deletion_timestamp,
                owner_references: wire.metadata.owner_references,
                finalizers: wire.metadata.finalizers,
                ..ObjectMeta::default()
            },
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

#[cfg(test)]
mod tests {
    use api::kinds::config_map::CONFIG_MAP;
    use api::kinds::pod::POD;
    use async_trait::async_trait;
    use client::{Body, Transport, TransportError, Upgrade};
    use http::{Request, Response};

    use super::*;

    /// A server that never answers.
    struct Silent;

    #[async_trait]
    impl Transport for Silent {
        async fn send(&self, _: Request<Bytes>) -> Result<Response<Body>, TransportError> {
            std::future::pending().await
        }

        async fn upgrade(&self, _: Request<Bytes>) -> Result<Upgrade, TransportError> {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn owners_of_unknown_kinds_are_looked_for_when_a_kind_appears() {
        let owner = OwnerReference {
            api_version: "test.dev/v1".to_owned(),
            kind: "Thing".to_owned(),
            name: "thing".to_owned(),
            uid: "thing".to_owned(),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            uid: "map".to_owned(),
            owner_references: vec![owner],
            ..ObjectMeta::default()
        };
        let mut follower = Follower {
            client: Client::new(Arc::new(Silent)),
            graph: Arc::default(),
            queue: Arc::new(WorkQueue::default()),
            running: BTreeMap::new(),
        };
        follower.follow(&[&CONFIG_MAP]);
        follower.graph.lock().set(Node::of(&CONFIG_MAP, &metadata));
        follower.follow(&[&CONFIG_MAP]);
        assert_eq!(follower.queue.len(), 0, "nothing is new");
        follower.follow(&[&CONFIG_MAP, &POD]);
        assert_eq!(follower.queue.next().await.name(), "thing");
    }

    #[test]
    fn a_version_that_is_none_belongs_to_no_kind() {
        let monitor = Monitor {
            resources: Arc::new(RwLock::new(vec![&POD, &api::kinds::replica_set::REPLICA_SET])),
            task: tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime")
                .spawn(std::future::pending::<()>())
                .abort_handle(),
        };
        let is_known = |api_version: &str, kind: &str| monitor.resource(api_version, kind).is_some();
        assert!(is_known("v1", "Pod") && is_known("apps/v1", "ReplicaSet"));
        assert!(!is_known("apps/v1/x", "ReplicaSet") && !is_known("/v1/x", "Pod") && !is_known("apps/v1", "Thing"));
    }
}
