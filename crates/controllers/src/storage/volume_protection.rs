//! Volumes, claims and classes of volumes that are in use outlive their deletion: a finalizer, which admission puts on every one, is taken
//! off only when nobody uses the object any more.

use std::sync::Arc;

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::volume_attributes_class::VOLUME_ATTRIBUTES_CLASS;
use api::{ObjectMeta, Resource};
use async_trait::async_trait;
use client::{Cache, Key};
use serde::Deserialize;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Metadata, Pod, with_metadata};
use crate::plan::{Action, Patch, Plan};

pub const CLAIM_ROW: Row = Row {
    name: "persistentvolumeclaim-protection",
    account: "pvc-protection-controller",
    queue: "pvcprotection",
    workers: 1,
    start: start_claims,
};

pub const VOLUME_ROW: Row = Row {
    name: "persistentvolume-protection",
    account: "pv-protection-controller",
    queue: "pvprotection",
    workers: 1,
    start: start_volumes,
};

pub const CLASS_ROW: Row = Row {
    name: "volumeattributesclass-protection",
    account: "volumeattributesclass-protection-controller",
    queue: "vacprotection",
    workers: 1,
    start: start_classes,
};

const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Files pods under the claims that they use.
const BY_CLAIM: &str = "claim";
/// Files volumes and claims under their classes.
const BY_CLASS: &str = "class";

struct Claims {
    claims: Arc<Cache<Metadata>>,
    pods: Arc<Cache<Pod>>,
}

struct Classes {
    classes: Arc<Cache<Metadata>>,
    claims: Arc<Cache<ClassUser>>,
    volumes: Arc<Cache<ClassUser>>,
}

/// A volume, or a claim, which can be on its way from one class to another.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClassUser {
    metadata: ObjectMeta,
    spec: ClassUserSpec,
    status: ClassUserStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClassUserSpec {
    volume_attributes_class_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClassUserStatus {
    current_volume_attributes_class_name: String,
    modify_volume_status: ModifyVolumeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ModifyVolumeStatus {
    target_volume_attributes_class_name: String,
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

with_metadata!(ClassUser, Volume);

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

fn start_classes(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let classes = setup.cache::<Metadata>(&VOLUME_ATTRIBUTES_CLASS);
    let claims = setup.cache::<ClassUser>(&PERSISTENT_VOLUME_CLAIM);
    let volumes = setup.cache::<ClassUser>(&PERSISTENT_VOLUME);
    setup.watch_own(&classes);
    for users in [&claims, &volumes] {
        users.add_index(BY_CLASS, ClassUser::classes);
        setup.watch(users, |user| {
            user.classes().iter().map(|name| Key::new("", name)).collect()
        });
    }
    Box::new(Classes {
        classes,
        claims,
        volumes,
    })
}

impl ClassUser {
    fn classes(&self) -> Vec<String> {
        let named = [
            &self.spec.volume_attributes_class_name,
            &self.status.current_volume_attributes_class_name,
            &self.status.modify_volume_status.target_volume_attributes_class_name,
        ];
        named.into_iter().filter(|name| !name.is_empty()).cloned().collect()
    }
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

#[async_trait]
impl Reconcile for Classes {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(class) = self.classes.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let name = &class.metadata.name;
        let used = [&self.claims, &self.volumes]
            .iter()
            .any(|users| !users.by(BY_CLASS, name).is_empty());
        Ok(plan(&VOLUME_ATTRIBUTES_CLASS, &class.metadata, CLASS_FINALIZER, used))
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
