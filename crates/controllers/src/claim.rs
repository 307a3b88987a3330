//! Which objects belong to a controller with a selector: those it owns and still selects, those it selects and nobody
//! owns, and those it owns but no longer selects.

use std::sync::Arc;

use api::selector::Selector;
use api::{ObjectMeta, Resource, Value};
use client::{Cache, Key, Object, WithMetadata};
use serde_json::json;

use crate::driver::{Setup, controller_key};
use crate::owner::controller_reference;
use crate::plan::{Action, Adopt, Patch};

/// Files objects under the UID of their controller.
pub const BY_CONTROLLER: &str = "controller";
/// Files objects without a controller under their namespace.
pub const ORPHANS: &str = "orphans";

/// The objects of a controller, and what it takes to make that so.
pub struct Claims<T> {
    pub owned: Vec<Arc<T>>,
    pub actions: Vec<Action>,
}

pub fn add_indexes<T: WithMetadata>(cache: &Cache<T>) {
    cache.add_index(BY_CONTROLLER, |object| {
        let controller = object.metadata().controller();
        controller.map(|owner| owner.uid.clone()).into_iter().collect()
    });
    cache.add_index(ORPHANS, |object| match object.metadata().controller() {
        Some(_) => Vec::new(),
        None => vec![object.metadata().namespace.clone()],
    });
}

/// Plans an owner when one of its dependents changes, and whoever selects a dependent that nobody controls: it may adopt.
pub fn watch_dependents<O: WithMetadata, T: WithMetadata>(
    setup: &Setup<'_>,
    owner: &'static Resource,
    owners: &Arc<Cache<O>>,
    dependents: &Cache<T>,
    selects: impl Fn(&O, &ObjectMeta) -> bool + Send + Sync + 'static,
) {
    let owners = owners.clone();
    setup.watch(dependents, move |object| {
        let metadata = object.metadata();
        match metadata.controller() {
            Some(_) => controller_key(metadata, owner.kind),
            None => selecting(&owners, metadata, &selects),
        }
    });
}

/// The owners of an object's namespace that select it.
pub fn selecting<O: WithMetadata>(
    owners: &Cache<O>,
    metadata: &ObjectMeta,
    selects: impl Fn(&O, &ObjectMeta) -> bool,
) -> Vec<Key> {
    let owners = owners.list(&metadata.namespace).into_iter();
    let selecting = owners.filter(|owner| selects(owner, metadata));
    selecting.map(|owner| owner.key()).collect()
}

/// What may belong to `owner`: its own objects and those of its namespace that nobody controls.
pub fn candidates<T: WithMetadata>(cache: &Cache<T>, owner: &ObjectMeta) -> Vec<Arc<T>> {
    let mut objects = cache.by(BY_CONTROLLER, &owner.uid);
    objects.extend(cache.by(ORPHANS, &owner.namespace));
    objects
}

/// Sorts `candidates`. An owner that is being deleted neither adopts nor releases.
pub fn claim<T: WithMetadata>(
    owner: (&'static Resource, &ObjectMeta),
    selector: &Selector,
    resource: &'static Resource,
    candidates: &[Arc<T>],
) -> Claims<T> {
    let mut claims = Claims {
        owned: Vec::new(),
        actions: Vec::new(),
    };
    for object in candidates {
        let metadata = object.metadata();
        let selected = selector.matches(&metadata.labels);
        match metadata.controller() {
            Some(controller) if controller.uid != owner.1.uid => {}
            Some(_) if selected => claims.owned.push(object.clone()),
            Some(_) if !owner.1.is_deleting() && !metadata.is_deleting() => {
                claims.actions.push(release(resource, metadata, &owner.1.uid));
            }
            None if selected && !owner.1.is_deleting() && !metadata.is_deleting() => {
                claims.actions.push(adopt(owner, resource, metadata));
            }
            _ => {}
        }
    }
    claims
}

fn adopt(owner: (&'static Resource, &ObjectMeta), resource: &'static Resource, metadata: &ObjectMeta) -> Action {
    let mut owners: Vec<Value> = metadata.owner_references.iter().map(reference).collect();
    owners.push(controller_reference(owner.0, owner.1));
    let body = json!({"metadata": {"uid": metadata.uid, "ownerReferences": owners}});
    Action::Adopt(Adopt {
        owner: owner.0,
        owner_name: owner.1.name.clone(),
        owner_uid: owner.1.uid.clone(),
        patch: Patch::new(resource, metadata, body).at_revision(metadata),
    })
}

fn release(resource: &'static Resource, metadata: &ObjectMeta, owner_uid: &str) -> Action {
    let others = metadata.owner_references.iter().filter(|owner| owner.uid != owner_uid);
    let owners: Vec<Value> = others.map(reference).collect();
    let body = json!({"metadata": {"uid": metadata.uid, "ownerReferences": owners}});
    Action::Patch(Patch::new(resource, metadata, body).at_revision(metadata))
}

/// An owner reference has no fields that its projection does not know.
pub fn reference(owner: &api::OwnerReference) -> Value {
    let mut value = json!({
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
    });
    if owner.controller {
        value["controller"] = true.into();
    }
    if owner.block_owner_deletion {
        value["blockOwnerDeletion"] = true.into();
    }
    value
}
