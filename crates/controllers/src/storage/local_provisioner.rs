//! The provisioner behind the default StorageClass: PersistentVolumes that are directories on one node, and their end.
//!
//! Keys are claims, for which `provision` makes volumes, and volumes, which have no namespace and which `reclaim` lets go
//! once their node has removed the data. The node's kubelet makes and removes the directory; the two meet in what
//! [`api::local_volumes`] names.

mod model;
mod provision;
mod reclaim;

use std::sync::Arc;

use api::kinds::node::NODE;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::storage_class::STORAGE_CLASS;
use async_trait::async_trait;
use client::{Cache, Key, Object};

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::Node;
use crate::plan::Plan;
pub use model::PROVISIONER;
use model::{Claim, Class, Volume};

pub const ROW: Row = Row {
    name: "local-volume-provisioner",
    account: "persistent-volume-binder",
    queue: "local_volume_provisioner",
    workers: 2,
    start,
};

struct Controller {
    claims: Arc<Cache<Claim>>,
    classes: Arc<Cache<Class>>,
    volumes: Arc<Cache<Volume>>,
    nodes: Arc<Cache<Node>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let claims = setup.cache::<Claim>(&PERSISTENT_VOLUME_CLAIM);
    let classes = setup.cache::<Class>(&STORAGE_CLASS);
    let volumes = setup.cache::<Volume>(&PERSISTENT_VOLUME);
    let nodes = setup.cache::<Node>(&NODE);
    let own = |claim: &Claim| match claim.wants_volume() {
        true => vec![claim.key()],
        false => Vec::new(),
    };
    setup.watch(&claims, own);
    let waiting = claims.clone();
    setup.watch(&classes, move |_| {
        let claims = waiting.all().into_iter().filter(|claim| claim.wants_volume());
        claims.map(|claim| claim.key()).collect()
    });
    setup.watch(&volumes, |volume| match volume.is_local() {
        true => vec![volume.key()],
        false => Vec::new(),
    });
    // The volumes of a node that was removed are let go without it.
    let (queue, known) = (setup.queue(), volumes.clone());
    nodes.on_change(move |old, new| {
        if let (Some(_), None) = (old, new) {
            let released = known.all().into_iter().filter(|volume| volume.is_local());
            released.for_each(|volume| queue.add(volume.key()));
        }
    });
    Box::new(Controller {
        claims,
        classes,
        volumes,
        nodes,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        if key.namespace().is_empty() {
            let volume = self.volumes.get_key(key.as_str());
            return Ok(volume.map_or_else(Plan::nothing, |volume| {
                let node = self.nodes.get("", volume.node());
                reclaim::plan(&volume, node.is_some())
            }));
        }
        let claim = self.claims.get_key(key.as_str()).filter(|claim| claim.wants_volume());
        let Some(claim) = claim else {
            return Ok(Plan::nothing());
        };
        let Some(class) = self.classes.get("", &claim.spec.storage_class_name) else {
            return Ok(Plan::nothing());
        };
        let node = self.nodes.get("", claim.selected_node());
        Ok(provision::plan(&claim, &class, node.as_deref()))
    }
}
