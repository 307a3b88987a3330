//! Keeps the authorizers' view of roles, bindings and pods current.

use std::sync::Arc;
use std::time::Duration;

use api::{Error, Resource, Value, kinds};
use store::{Event, Revision};
use tracing::warn;

use super::Gate;
use crate::ApiServer;
use crate::registry::{Registry, Served};
use crate::watch::Read;

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

impl Gate {
    /// Takes in everything there is; returns the revision this is complete to.
    pub fn load(&self, registry: &Registry) -> Result<Revision, Error> {
        let snapshot = registry.store.snapshot();
        for resource in FOLLOWED {
            let served = registry.served(resource)?;
            for entry in snapshot.range(&served.prefix, &served.prefix) {
                self.set(served, &entry.value);
            }
        }
        Ok(snapshot.revision())
    }

    fn take(&self, served: &Served, event: &Event) {
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

/// Takes in changes for ever, starting after `from`.
pub async fn follow(server: Arc<ApiServer>, from: Revision) {
    let followers = FOLLOWED.iter().map(|resource| follow_one(&server, resource, from));
    futures_util::future::join_all(followers).await;
}

async fn follow_one(server: &Arc<ApiServer>, resource: &'static Resource, from: Revision) {
    let Ok(served) = server.registry.served(resource) else {
        return;
    };
    let mut follower = served.follow(from);
    loop {
        match follower.next().await {
            Read::Changes(changes) => changes
                .iter()
                .for_each(|change| server.gate.take(served, &change.event)),
            Read::Behind => match server.gate.load(&server.registry) {
                Ok(revision) => follower.restart(revision),
                Err(error) => {
                    warn!(%error, "the authorizers' view could not be loaded anew");
                    tokio::time::sleep(AGAIN).await;
                }
            },
        }
    }
}

fn parse(served: &Served, bytes: &[u8]) -> Option<Value> {
    match serde_json::from_slice(bytes) {
        Ok(object) => Some(object),
        Err(error) => {
            warn!(%error, resource = served.resource.plural, "a stored object is not JSON; its rights do not count");
            None
        }
    }
}
