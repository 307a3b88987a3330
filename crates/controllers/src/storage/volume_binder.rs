//! Binds claims to volumes. A claim takes the smallest volume that satisfies it, or waits for one to be provisioned; a
//! volume whose claim is gone is released.
//!
//! Binding takes several writes, of two objects; each plan makes the next one, so that it can be taken up anywhere.

mod claims;
mod model;
mod volumes;

use std::sync::Arc;

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::storage_class::STORAGE_CLASS;
use async_trait::async_trait;
use client::{Cache, Key};

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::plan::Plan;
use model::{Claim, StorageClass, Volume};

pub const ROW: Row = Row {
    name: "persistentvolume-binder",
    account: "persistent-volume-binder",
    queue: "claims",
    workers: 1,
    start,
};

/// Files volumes under the claims they are bound to, or meant for.
const BY_CLAIM: &str = "claim";

/// Keys are claims, and volumes: those have no namespace.
struct Controller {
    claims: Arc<Cache<Claim>>,
    volumes: Arc<Cache<Volume>>,
    classes: Arc<Cache<StorageClass>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let claims = setup.cache::<Claim>(&PERSISTENT_VOLUME_CLAIM);
    let volumes = setup.cache::<Volume>(&PERSISTENT_VOLUME);
    let classes = setup.cache::<StorageClass>(&STORAGE_CLASS);
    volumes.add_index(BY_CLAIM, |volume| {
        volume.claim_key().iter().map(Key::to_string).collect()
    });
    let with_volume = |claim: &Claim| {
        let volume = (!claim.spec.volume_name.is_empty()).then(|| Key::new("", &claim.spec.volume_name));
        [client::Object::key(claim)].into_iter().chain(volume).collect()
    };
    setup.watch(&claims, with_volume);
    // A volume that is free is of interest to every claim that waits.
    let waiting = claims.clone();
    setup.watch(&volumes, move |volume| {
        let own = [Key::new("", &volume.metadata.name)].into_iter();
        match volume.claim_key() {
            Some(claim) => own.chain([claim]).collect(),
            None => own.chain(unbound(&waiting)).collect(),
        }
    });
    let waiting = claims.clone();
    setup.watch(&classes, move |_| unbound(&waiting));
    // Volumes that were bound to a claim before it went must notice that it is gone.
    let (queue, known) = (setup.queue(), volumes.clone());
    claims.on_change(move |old, new| {
        if let (Some(claim), None) = (old, new) {
            let bound = known.by(BY_CLAIM, client::Object::key(&**claim).as_str());
            bound
                .iter()
                .for_each(|volume| queue.add(Key::new("", &volume.metadata.name)));
        }
    });
    Box::new(Controller {
        claims,
        volumes,
        classes,
    })
}

fn unbound(claims: &Cache<Claim>) -> Vec<Key> {
    let all = claims.all().into_iter().filter(|claim| !claim.is_bound());
    all.map(|claim| client::Object::key(&*claim)).collect()
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        if key.namespace().is_empty() {
            let Some(volume) = self.volumes.get_key(key.as_str()) else {
                return Ok(Plan::nothing());
            };
            let claim = volume.claim_key().and_then(|key| self.claims.get_key(key.as_str()));
            return Ok(volumes::plan(&volume, claim.as_deref(), attempt.now));
        }
        let Some(claim) = self.claims.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let view = claims::View {
            volumes: self.volumes.all(),
            classes: self.classes.all(),
            claim,
        };
        Ok(claims::plan(&view))
    }
}
