//! Keeps the authorizers' view of roles, bindings and pods current.

use std::sync::Arc;
use std::time::Duration;

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
const NOT_LOADED: &str = "the authorizers' view could not be loaded anew";

/// Where the authorizers are in the changes of one resource.
pub(super) struct Place {
    served: Arc<Served>,
    follower: Mutex<Follower>,
}

impl Gate {
    /// Takes in everything there is, and is ready to take in what changes after it.
    pub fn open(&self, registry: &Registry) -> Result<(), Error> {
        let from = self.load(registry)?;
        let places = FOLLOWED.iter().map(|resource| {
            let served = registry.served(resource)?.clone();
            let follower = Mutex::new(served.follow(from));
            Ok(Place { served, follower })
        });
        let places: Vec<Place> = places.collect::<Result<_, Error>>()?;
        self.places.get_or_init(|| places);
        Ok(())
    }

    /// Takes in all that watchers can have heard of by now.
    pub(super) fn catch_up(&self, registry: &Registry) {
        for place in self.places() {
            if let Err(error) = self.advance(registry, place) {
                warn!(%error, "{NOT_LOADED}");
            }
        }
    }

    /// None before they are loaded.
    fn places(&self) -> &[Place] {
        self.places.get().map_or(&[], Vec::as_slice)
    }

    /// Takes in what has changed. Who comes here while another does so waits until that is done.
    fn advance(&self, registry: &Registry, place: &Place) -> Result<(), Error> {
        let mut follower = place.follower.lock();
        match follower.read() {
            Read::Changes(changes) => changes
                .iter()
                .for_each(|change| self.take(&place.served, &change.event)),
            Read::Behind => follower.restart(self.load(registry)?),
        }
        Ok(())
    }

    /// Takes in everything there is; returns the revision this is complete to.
    fn load(&self, registry: &Registry) -> Result<Revision, Error> {
        let snapshot = registry.snapshot();
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

/// Takes in changes for ever.
pub async fn follow(registry: Arc<Registry>, gate: Arc<Gate>) {
    let followers = gate.places().iter().map(|place| follow_one(&registry, &gate, place));
    futures_util::future::join_all(followers).await;
}

async fn follow_one(registry: &Registry, gate: &Gate, place: &Place) {
    let bell = place.follower.lock().bell();
    loop {
        // What rings after this call is heard, also while the changes before it are taken in.
        let rung = bell.rung();
        match gate.advance(registry, place) {
            Ok(()) => rung.await,
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
            warn!(%error, resource = served.resource.plural, "a stored object is not JSON; its rights do not count");
            None
        }
    }
}
