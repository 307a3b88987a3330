//! Static pods: pods that the node is given by files or a URL, and runs whether there is an API server or not.
//!
//! [`manifest`] makes pods of what was read, purely; [`source`] reads and watches; [`mirror`] decides purely which
//! objects in the API stand for them. [`StaticPods`] hands the pods to their workers and keeps the mirror pods.

mod manifest;
mod mirror;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Cache, Client, DeleteOptions};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::options::KubeletOptions;
use crate::pod::{Origin, Pod};
use crate::pods::Pods;
use crate::worker::PodObject;
pub use manifest::Manifest;
use mirror::Step;

/// How long to wait after something failed in the API.
const RETRY: Duration = Duration::from_secs(1);
/// How often to look whether the predecessor of a pod is gone.
const LEAVING_CHECK: Duration = Duration::from_millis(100);
/// How often to look without any change.
const RESYNC: Duration = Duration::from_secs(60);

/// What runs on this node: what the API says, and static pods in the place of their mirror pods.
#[derive(Clone)]
pub struct NodePods {
    api: Arc<Cache<PodObject>>,
    statics: Arc<StaticPods>,
}

/// The static pods of this node.
pub struct StaticPods {
    client: Client,
    node_name: String,
    state: Mutex<State>,
    /// Told when a source, a mirror pod or a worker changed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// What each source has now.
    sources: BTreeMap<&'static str, Vec<Manifest>>,
    /// What workers were told, by `namespace/name`.
    running: BTreeMap<String, Running>,
    node_uid: String,
}

struct Running {
    manifest: Manifest,
    /// As it was last told to the worker.
    told: Arc<PodObject>,
    /// As requests see it.
    shown: Arc<PodObject>,
    /// No source has it any more; its worker ends it.
    leaving: bool,
}

impl NodePods {
    pub fn new(api: Arc<Cache<PodObject>>, statics: Arc<StaticPods>) -> NodePods {
        NodePods { api, statics }
    }

    /// Every pod that runs here.
    pub fn all(&self) -> Vec<Arc<PodObject>> {
        let mut all = self.api.all();
        all.retain(|object| !object.pod.is_mirror());
        let state = self.statics.state.lock();
        all.extend(state.running.values().map(|running| running.shown.clone()));
        all
    }

    /// The pod of this name. Where the API has one that is not a mirror pod, that is the one a caller was allowed to reach.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<PodObject>> {
        let found = self.api.get(namespace, name);
        if let Some(found) = found.filter(|object| !object.pod.is_mirror()) {
            return Some(found);
        }
        let state = self.statics.state.lock();
        let running = state.running.get(&format!("{namespace}/{name}"))?;
        Some(running.shown.clone())
    }
}

impl StaticPods {
    pub fn new(options: &KubeletOptions) -> Arc<StaticPods> {
        Arc::new(StaticPods {
            client: options.client.clone(),
            node_name: options.node_name.clone(),
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A mirror pod changed.
    pub fn nudge(&self) {
        self.changed.notify_one();
    }

    /// Replaces what a source has.
    fn replace(&self, source: &'static str, manifests: Vec<Manifest>) {
        self.state.lock().sources.insert(source, manifests);
        self.changed.notify_one();
    }

    /// Reads the sources and keeps pods and mirror pods as they say, for as long as it is not dropped.
    pub async fn run(self: Arc<Self>, options: KubeletOptions, pods: Arc<Pods>, api: Arc<Cache<PodObject>>) {
        let read = source::follow(&self, &options);
        let kept = self.keep(&pods, &api);
        tokio::join!(read, kept);
    }

    /// Reads the directory once and starts its pods, before anything that runs is taken for an orphan.
    pub fn load(&self, options: &KubeletOptions, pods: &Arc<Pods>, api: &Cache<PodObject>) {
        if let Some(path) = &options.static_pod_path {
            self.replace(source::FILE, source::read_path(path, &self.node_name));
            self.settle(pods, api);
        }
    }

    async fn keep(&self, pods: &Arc<Pods>, api: &Cache<PodObject>) {
        loop {
            let leaving = self.settle(pods, api);
            let failed = api.is_synced() && !self.mirror(api).await;
            let pause = match (failed, leaving) {
                (true, _) => RETRY,
                (_, true) => LEAVING_CHECK,
                _ => RESYNC,
            };
            let _ = tokio::time::timeout(pause, self.changed.notified()).await;
        }
    }

    /// Tells workers what their pods are to be now. True if some are still ending.
    fn settle(&self, pods: &Arc<Pods>, api: &Cache<PodObject>) -> bool {
        let mut state = self.state.lock();
        let wanted = state.wanted();
        for (key, running) in &mut state.running {
            let uid = wanted.get(key).map(|manifest| &manifest.uid);
            if uid != Some(&running.manifest.uid) && !running.leaving {
                running.leaving = true;
                pods.changed(Some(&running.told), None);
            }
        }
        // A namesake starts when nothing is left of the one before it.
        state
            .running
            .retain(|_, running| !running.leaving || pods.knows(&running.manifest.uid));
        for (key, manifest) in wanted {
            let mirror = api.get_key(&key).filter(|object| manifest.is_mirrored_by(&object.pod));
            let old = state.running.get(&key);
            if old.is_some_and(|old| old.leaving || old.is_same(&manifest, mirror.as_deref())) {
                continue;
            }
            let Some(running) = Running::new(manifest, mirror.as_deref()) else {
                continue;
            };
            pods.changed(old.map(|old| &old.told), Some(&running.told));
            state.running.insert(key, running);
        }
        state.running.values().any(|running| running.leaving)
    }

    /// Brings the mirror pods in line. False if something has to be tried again.
    async fn mirror(&self, api: &Cache<PodObject>) -> bool {
        let steps = {
            let state = self.state.lock();
            let wanted: Vec<(String, &Manifest)> = state
                .running
                .iter()
                .filter(|(_, running)| !running.leaving)
                .map(|(key, running)| (key.clone(), &running.manifest))
                .collect();
            let ending = |key: &str| state.running.get(key).is_some_and(|running| running.leaving);
            mirror::plan(&wanted, &api.all(), &ending)
        };
        let mut good = true;
        for step in steps {
            if let Err(error) = self.carry_out(&step).await {
                tracing::warn!(%error, pod = step.key(), "Failed to keep the mirror pod of a static pod; trying again");
                good = false;
            }
        }
        good
    }

    async fn carry_out(&self, step: &Step) -> Result<(), client::Error> {
        let pods = self.client.resource(&api::kinds::pod::POD);
        match step {
            Step::Delete { namespace, name, uid } => {
                let options = DeleteOptions {
                    grace_period_seconds: Some(0),
                    uid: Some(uid.clone()),
                    ..DeleteOptions::default()
                };
                match pods.in_namespace(namespace.clone()).delete(name, &options).await {
                    Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
                    other => other.map(drop),
                }
            }
            Step::Create { namespace, pod, .. } => {
                let node_uid = self.node_uid().await?;
                let object = mirror::object(pod, &self.node_name, &node_uid);
                match pods.in_namespace(namespace.clone()).create::<IgnoredAny>(&object).await {
                    Err(error) if error.is_already_exists() => Ok(()),
                    other => other.map(drop),
                }
            }
        }
    }

    /// Mirror pods are owned by their node.
    async fn node_uid(&self) -> Result<String, client::Error> {
        let known = self.state.lock().node_uid.clone();
        if !known.is_empty() {
            return Ok(known);
        }
        let nodes = self.client.resource(&api::kinds::node::NODE);
        let node: Value = nodes.get(&self.node_name).await?;
        let uid = node["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.state.lock().node_uid.clone_from(&uid);
        Ok(uid)
    }
}

impl State {
    /// All pods that sources have. Of namesakes the first counts, files before the URL.
    fn wanted(&self) -> BTreeMap<String, Manifest> {
        let mut wanted = BTreeMap::new();
        for manifest in self.sources.values().flatten() {
            wanted.entry(manifest.key()).or_insert_with(|| manifest.clone());
        }
        wanted
    }
}

impl Running {
    fn new(manifest: Manifest, mirror: Option<&PodObject>) -> Option<Running> {
        let mut pod: Pod = match serde_json::from_value(manifest.pod.clone()) {
            Ok(pod) => pod,
            Err(error) => {
                tracing::error!(%error, pod = manifest.key(), "a static pod cannot be read");
                return None;
            }
        };
        let mirror_uid = mirror.map(|mirror| mirror.pod.metadata.uid.clone());
        pod.origin = Origin::Static { mirror_uid };
        if let Some(mirror) = mirror {
            // What outlives a restart of the kubelet. Not the phase: nobody ends a static pod by what he writes to the API.
            let known = &mirror.pod.status;
            pod.status.start_time = known.start_time;
            pod.status.conditions.clone_from(&known.conditions);
            pod.status.container_statuses.clone_from(&known.container_statuses);
            pod.status
                .init_container_statuses
                .clone_from(&known.init_container_statuses);
        }
        let pod = Arc::new(pod);
        let mut shown = manifest.pod.clone();
        let status = mirror.and_then(|mirror| serde_json::from_slice::<Value>(&mirror.raw).ok());
        shown["status"] = status.map_or_else(|| json!({"phase": "Pending"}), |mut object| object["status"].take());
        let object = |raw: Bytes| Arc::new(PodObject { pod: pod.clone(), raw });
        Some(Running {
            told: object(mirror.map(|mirror| mirror.raw.clone()).unwrap_or_default()),
            shown: object(Bytes::from(shown.to_string())),
            manifest,
            leaving: false,
        })
    }

    fn is_same(&self, manifest: &Manifest, mirror: Option<&PodObject>) -> bool {
        self.manifest.pod == manifest.pod
            && self.told.raw == mirror.map(|mirror| mirror.raw.clone()).unwrap_or_default()
    }
}
