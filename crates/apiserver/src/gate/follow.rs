//! Keeps the authorizers' view of roles, bindings and pods current, and that of nodes for authentication.

use std::sync::Arc;
use std::time::Duration;

use api::kinds::node::NODE;
use api::{Error, Resource, Value, kinds};
use parking_lot::Mutex;
use registry::watch::{Follower, Read};
use registry::{Registry, Served};
use store::{Event, Revision};
use tracing::warn;

use super::Gate;

/// What the authorizers must know of.
static FOLLOWED: [&Resource; 9] = [
    &kinds::cluster_role::CLUSTER_ROLE,
    &kinds::cluster_role_binding::CLUSTER_ROLE_BINDING,
    &kinds::role::ROLE,
    &kinds::role_binding::ROLE_BINDING,
    &kinds::persistent_volume::PERSISTENT_VOLUME,
    &kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM,
    &kinds::pod::POD,
    &kinds::resource_slice::RESOURCE_SLICE,
    &kinds::volume_attachment::VOLUME_ATTACHMENT,
];

/// How soon loading is tried again when it failed.
const AGAIN: Duration = Duration::from_millis(500);
const NOT_LOADED: &str = "Failed to load roles, bindings and pods for the authorizers; retrying";

/// Where the authorizers are in the changes of one resource.
pub(super) struct WatchPosition {
    served: Arc<Served>,
    follower: Mutex<Follower>,
}

impl WatchPosition {
    fn follows_nodes(&self) -> bool {
        is_node(&self.served)
    }
}

fn is_node(served: &Served) -> bool {
    std::ptr::eq(served.resource, &NODE)
}

/// The last part of a Node's key.
fn node_name<'a>(served: &Served, key: &'a str) -> &'a str {
    key.strip_prefix(served.prefix.as_str()).unwrap_or(key)
}

impl Gate {
    /// Takes in everything there is, and is ready to take in what changes after it.
    pub fn open(&self, registry: &Registry) -> Result<(), Error> {
        let from = self.load(registry)?;
        let positions = self.followed().map(|resource| {
            let served = registry.served(resource)?.clone();
            let follower = Mutex::new(served.follow(from));
            Ok(WatchPosition { served, follower })
        });
        self.load_deleted_nodes(registry);
        let positions: Vec<WatchPosition> = positions.collect::<Result<_, Error>>()?;
        self.positions.get_or_init(|| positions);
        Ok(())
    }

    fn followed(&self) -> impl Iterator<Item = &'static Resource> + use<> {
        let nodes = self.deleted_nodes.as_ref().map(|_| &NODE);
        FOLLOWED.iter().copied().chain(nodes)
    }

    /// Takes in what watchers can have heard of nodes by now.
    pub(super) fn catch_up_nodes(&self, registry: &Registry) {
        for position in self.positions().iter().filter(|position| position.follows_nodes()) {
            if let Err(error) = self.advance(registry, position) {
                warn!(%error, "{NOT_LOADED}");
            }
        }
    }

    /// Takes in all that watchers can have heard of by now.
    pub(super) fn catch_up(&self, registry: &Registry) {
        for position in self.positions() {
            if let Err(error) = self.advance(registry, position) {
                warn!(%error, "{NOT_LOADED}");
            }
        }
    }

    /// None before they are loaded.
    fn positions(&self) -> &[WatchPosition] {
        self.positions.get().map_or(&[], Vec::as_slice)
    }

    /// Takes in what has changed. Who comes here while another does so waits until that is done.
    fn advance(&self, registry: &Registry, position: &WatchPosition) -> Result<(), Error> {
        let mut follower = position.follower.lock();
        match follower.read() {
            Read::Changes(changes) => changes
                .iter()
                .for_each(|change| self.take(&position.served, &change.event)),
            Read::Behind => follower.restart(self.load(registry)?),
        }
        Ok(())
    }

    /// Takes in everything there is; returns the revision this is complete to.
    fn load(&self, registry: &Registry) -> Result<Revision, Error> {
        let snapshot = registry.snapshot();
        for resource in self.followed() {
            let served = registry.served(resource)?;
            if let Some(nodes) = self.deleted_nodes.as_ref().filter(|_| std::ptr::eq(resource, &NODE)) {
                let entries = snapshot.range(&served.prefix, &served.prefix);
                let names = entries.map(|entry| node_name(served, &entry.key).to_owned());
                nodes.replace(names.collect(), schema::time::now().seconds);
                continue;
            }
            for entry in snapshot.range(&served.prefix, &served.prefix) {
                self.set(served, &entry.value);
            }
        }
        Ok(snapshot.revision())
    }

    fn take(&self, served: &Served, event: &Event) {
        if let Some(nodes) = self.deleted_nodes.as_ref().filter(|_| is_node(served)) {
            let name = node_name(served, &event.key);
            return match &event.current {
                Some(_) => nodes.appeared(name),
                None => nodes.disappeared(name, schema::time::now().seconds),
            };
        }
        match (&event.current, &event.previous) {
            (Some(entry), _) => self.set(served, &entry.value),
            (None, Some(entry)) => {
                let Some(object) = parse(served, &entry.value) else {
                    return;
                };
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                self.rbac
                    .remove(served.resource.plural, text("namespace"), text("name"));
                self.nodes
                    .remove(served.resource.plural, text("namespace"), text("name"));
            }
            (None, None) => {}
        }
    }

    fn set(&self, served: &Served, bytes: &[u8]) {
        if let Some(object) = parse(served, bytes) {
            self.rbac.set(served.resource.plural, &object);
            self.nodes.set(served.resource.plural, &object);
        }
    }
}

/// Takes in changes for ever.
pub async fn follow(registry: Arc<Registry>, gate: Arc<Gate>) {
    let followers = gate
        .positions()
        .iter()
        .map(|position| follow_one(&registry, &gate, position));
    futures_util::future::join_all(followers).await;
}

async fn follow_one(registry: &Registry, gate: &Gate, position: &WatchPosition) {
    let signal = position.follower.lock().wake_signal();
    loop {
        // What rings after this call is heard, also while the changes before it are taken in.
        let woken = signal.woken();
        match gate.advance(registry, position) {
            Ok(()) => woken.await,
            Err(error) => {
                warn!(%error, "{NOT_LOADED}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn parse(served: &Served, bytes: &[u8]) -> Option<Value> {
    match serde_json::from_slice(bytes) {
        Ok(object) => Some(object),
        Err(error) => {
            warn!(%error, resource = served.resource.plural, "Failed to decode a stored object; the authorizers ignore it");
            None
        }
    }
}
