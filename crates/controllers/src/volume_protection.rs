//! Volumes and claims that are in use outlive their deletion: a finalizer, which admission puts on every one, is taken
//! off only when nobody uses the object any more.

use std::sync::Arc;

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::{ObjectMeta, Resource};
use async_trait::async_trait;
use client::{Cache, Key};
use serde::Deserialize;
use serde_json::json;

use crate::model::{Metadata, Pod, with_metadata};
use crate::plan::{Action, Patch};
use crate::{Attempt, Plan, Reconcile, Row, Setup};

pub const CLAIM_ROW: Row = Row {
    name: "persistentvolumeclaim-protection",
    account: "pvc-protection-controller",
    workers: 1,
    start: start_claims,
};

pub const VOLUME_ROW: Row = Row {
    name: "persistentvolume-protection",
    account: "pv-protection-controller",
    workers: 1,
    start: start_volumes,
};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Files pods under the claims that they use.
const BY_CLAIM: &str = "claim";

struct Claims {
    claims: Arc<Cache<Metadata>>,
    pods: Arc<Cache<Pod>>,
}

struct Volumes {
    volumes: Arc<Cache<Volume>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Volume {
    metadata: ObjectMeta,
    status: VolumeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VolumeStatus {
    phase: String,
}

with_metadata!(Volume);

fn start_claims(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let claims = setup.cache::<Metadata>(&PERSISTENT_VOLUME_CLAIM);
    let pods = setup.cache::<Pod>(&POD);
    pods.add_index(BY_CLAIM, |pod| claim_keys(pod).iter().map(Key::to_string).collect());
    setup.watch_own(&claims);
    setup.watch(&pods, claim_keys);
    Box::new(Claims { claims, pods })
}

fn start_volumes(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let volumes = setup.cache::<Volume>(&PERSISTENT_VOLUME);
    setup.watch_own(&volumes);
    Box::new(Volumes { volumes })
}

fn claim_keys(pod: &Pod) -> Vec<Key> {
    let names = pod.claims();
    names.map(|name| Key::new(&pod.metadata.namespace, &name)).collect()
}

#[async_trait]
impl Reconcile for Claims {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(claim) = self.claims.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let used = self.pods.by(BY_CLAIM, key.as_str()).iter().any(|pod| is_user(pod));
        Ok(plan(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, CLAIM_FINALIZER, used))
    }
}

#[async_trait]
impl Reconcile for Volumes {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(volume) = self.volumes.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let used = volume.status.phase == "Bound";
        Ok(plan(&PERSISTENT_VOLUME, &volume.metadata, VOLUME_FINALIZER, used))
    }
}

/// A pod without a node uses nothing yet, and none can come to it once the claim is being deleted.
fn is_user(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.is_finished()
}

fn plan(resource: &'static Resource, metadata: &ObjectMeta, finalizer: &str, used: bool) -> Plan {
    let mut plan = Plan::default();
    let mut left = metadata.finalizers.clone();
    left.retain(|known| known != finalizer);
    if metadata.is_deleting() && !used && left.len() < metadata.finalizers.len() {
        let patch = Patch::new(resource, metadata, json!({"metadata": {"finalizers": left}}));
        plan.actions
            .push(Action::Patch(patch.at_revision(metadata).by_update()));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn the_finalizer_goes_when_nobody_uses_what_is_being_deleted() {
        let claim = object::<Metadata>(
            "metadata: {name: c, namespace: team, resourceVersion: '3', deletionTimestamp: '2026-01-01T12:00:00Z', \
             finalizers: [other, kubernetes.io/pvc-protection]}",
        );
        let text = |used| plan(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, CLAIM_FINALIZER, used).to_string();
        assert_eq!(text(true), "");
        assert_eq!(
            text(false),
            "patch persistentvolumeclaims team/c: {\"metadata\":{\"finalizers\":[\"other\"],\"resourceVersion\":\"3\"}}\n"
        );
    }

    #[test]
    fn pods_use_claims_by_name_and_through_ephemeral_volumes() {
        let pod = object::<Pod>(
            "
metadata: {name: p, namespace: team}
spec:
  nodeName: node
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: c}}
  - {name: scratch, ephemeral: {volumeClaimTemplate: {spec: {}}}}
  - {name: rest, emptyDir: {}}
",
        );
        let keys: Vec<String> = claim_keys(&pod).iter().map(Key::to_string).collect();
        assert_eq!(keys, ["team/c", "team/p-scratch"]);
        assert!(is_user(&pod));
    }
}
