//! What a claim does next on its way to a volume.

use std::sync::Arc;

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::{Fields, Value};
use client::{EventType, ObjectReference};
use serde_json::{Map, json};

use super::model::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, Claim, OLD_PROVISIONER, PROVISIONER, SELECTED_NODE, StorageClass, Volume,
};
use crate::plan::{Action, Event, Patch, Plan};
use crate::status;

pub struct View {
    pub claim: Arc<Claim>,
    pub volumes: Vec<Arc<Volume>>,
    pub classes: Vec<Arc<StorageClass>>,
}

pub fn plan(view: &View) -> Plan {
    let claim = &*view.claim;
    let mut plan = Plan::default();
    if claim.metadata.is_deleting() && !claim.is_bound() {
        return plan;
    }
    let named = || {
        view.volumes
            .iter()
            .find(|volume| volume.metadata.name == claim.spec.volume_name)
    };
    if claim.is_bound() {
        match named() {
            Some(volume) if volume.spec.claim_ref.is_none() || volume.is_for(claim) => bind(&mut plan, claim, volume),
            Some(_) => lose(
                &mut plan,
                claim,
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            ),
            None if claim.spec.volume_name.is_empty() => lose(
                &mut plan,
                claim,
                "ClaimLost",
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
            ),
            None => lose(
                &mut plan,
                claim,
                "ClaimLost",
                "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
            ),
        }
        return plan;
    }
    let chosen = match claim.spec.volume_name.is_empty() {
        // The user has chosen; when that volume comes, and is free, it is taken.
        false => named()
            .filter(|volume| volume.is_for(claim) || (volume.spec.claim_ref.is_none() && volume.satisfies(claim))),
        true => best(view),
    };
    match chosen {
        Some(volume) => bind(&mut plan, claim, volume),
        None => wait(view, &mut plan),
    }
    plan
}

/// A volume that is meant for the claim, or else the smallest free one that satisfies it.
fn best(view: &View) -> Option<&Arc<Volume>> {
    let claim = &*view.claim;
    let usable = || view.volumes.iter().filter(|volume| !volume.metadata.is_deleting());
    if let Some(meant) = usable().find(|volume| volume.is_for(claim)) {
        return Some(meant);
    }
    if waits_for_consumer(view) {
        return None;
    }
    let free = usable().filter(|volume| volume.spec.claim_ref.is_none() && volume.status.text("phase") == "Available");
    let fitting = free.filter(|volume| volume.satisfies(claim));
    fitting.min_by(|one, other| {
        let by_name = one.metadata.name.cmp(&other.metadata.name);
        one.size()
            .partial_cmp(&other.size())
            .unwrap_or(std::cmp::Ordering::Equal)
            .then(by_name)
    })
}

fn class(view: &View) -> Option<&Arc<StorageClass>> {
    view.classes
        .iter()
        .find(|class| class.metadata.name == view.claim.class())
}

/// Where the volume is matters to the first pod, so the scheduler chooses first.
fn waits_for_consumer(view: &View) -> bool {
    class(view).is_some_and(|class| class.waits_for_consumer())
        && !view.claim.metadata.annotations.contains_key(SELECTED_NODE)
}

/// The next of the writes that bind the two to one another.
fn bind(plan: &mut Plan, claim: &Claim, volume: &Volume) {
    if !volume.is_bound_to(claim) {
        let metadata = &claim.metadata;
        let mut body = json!({"spec": {"claimRef": {
            "kind": PERSISTENT_VOLUME_CLAIM.kind,
            "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version(),
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        }}});
        if volume.spec.claim_ref.is_none() {
            body["metadata"] = json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}});
        }
        let patch = Patch::new(&PERSISTENT_VOLUME, &volume.metadata, body);
        plan.actions
            .push(Action::Patch(patch.at_revision(&volume.metadata).by_update()));
        return;
    }
    let mut annotations = Map::new();
    let mut body = Map::new();
    if claim.spec.volume_name != volume.metadata.name {
        body.insert("spec".to_owned(), json!({"volumeName": volume.metadata.name}));
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".into());
    }
    if !claim.is_bound() {
        annotations.insert(BIND_COMPLETED.to_owned(), "yes".into());
    }
    if !annotations.is_empty() {
        body.insert("metadata".to_owned(), json!({"annotations": annotations}));
        let patch = Patch::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, body.into());
        plan.actions
            .push(Action::Patch(patch.at_revision(&claim.metadata).by_update()));
        return;
    }
    let mut wanted = json!({"phase": "Bound", "accessModes": volume.spec.access_modes});
    if !claim.status.has("capacity") {
        // From then on whoever resizes the volume writes it.
        wanted["capacity"] = volume.spec.capacity.clone();
    }
    tell_phase(plan, claim, wanted);
}

/// Says why there is no volume yet, and asks for one to be made if the class can.
fn wait(view: &View, plan: &mut Plan) {
    let claim = &*view.claim;
    let default = || {
        view.classes
            .iter()
            .filter(|class| class.is_default())
            .max_by(|one, other| by_age(one, other))
    };
    if claim.leaves_class_open()
        && claim.spec.volume_name.is_empty()
        && let Some(class) = default()
    {
        // A class that became the default only after the claim was made.
        let body = json!({"spec": {"storageClassName": class.metadata.name}});
        let patch = Patch::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, body);
        plan.actions
            .push(Action::Patch(patch.at_revision(&claim.metadata).by_update()));
        return;
    }
    tell_phase(plan, claim, json!({"phase": "Pending"}));
    if !claim.spec.volume_name.is_empty() {
        return;
    }
    if waits_for_consumer(view) {
        let message = "waiting for first consumer to be created before binding";
        plan.actions.push(event(
            claim,
            EventType::Normal,
            "WaitForFirstConsumer",
            message.to_owned(),
        ));
        return;
    }
    match (claim.class(), class(view)) {
        ("", _) => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            plan.actions
                .push(event(claim, EventType::Normal, "FailedBinding", message.to_owned()));
        }
        (name, None) => {
            let message = format!("storageclass.storage.k8s.io {name:?} not found");
            plan.actions
                .push(event(claim, EventType::Warning, "ProvisioningFailed", message));
        }
        (_, Some(class)) => provision(plan, claim, class),
    }
}

/// The newest default counts, and of several of an age the first by name.
fn by_age(one: &StorageClass, other: &StorageClass) -> std::cmp::Ordering {
    let created = |class: &StorageClass| crate::model::created(&class.metadata);
    let by_name = other.metadata.name.cmp(&one.metadata.name);
    created(one).cmp(&created(other)).then(by_name)
}

fn provision(plan: &mut Plan, claim: &Claim, class: &StorageClass) {
    let provisioner = &class.provisioner;
    if provisioner == "kubernetes.io/no-provisioner" {
        return;
    }
    if claim.metadata.annotations.get(PROVISIONER) != Some(provisioner) {
        let body = json!({"metadata": {"annotations": {PROVISIONER: provisioner, OLD_PROVISIONER: provisioner}}});
        let patch = Patch::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, body);
        plan.actions
            .push(Action::Patch(patch.at_revision(&claim.metadata).by_update()));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    plan.actions
        .push(event(claim, EventType::Normal, "ExternalProvisioning", message));
}

fn lose(plan: &mut Plan, claim: &Claim, reason: &'static str, message: &str) {
    if claim.status.text("phase") != "Lost" {
        plan.actions
            .push(event(claim, EventType::Warning, reason, message.to_owned()));
    }
    tell_phase(plan, claim, json!({"phase": "Lost"}));
}

fn tell_phase(plan: &mut Plan, claim: &Claim, wanted: Value) {
    plan.status = status::patch(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, &claim.status, wanted);
}

fn event(claim: &Claim, kind: EventType, reason: &'static str, message: String) -> Action {
    Action::Event(Event {
        about: ObjectReference::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata),
        kind,
        reason,
        message,
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{object, objects};

    const VOLUMES: &str = "
metadata: {name: small, resourceVersion: '1'}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}
status: {phase: Available}
---
metadata: {name: large, resourceVersion: '2'}
spec: {capacity: {storage: 20Gi}, accessModes: [ReadWriteOnce, ReadOnlyMany]}
status: {phase: Available}
---
metadata: {name: fitting, resourceVersion: '3'}
spec: {capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce]}
status: {phase: Available}
";

    fn check(metadata: &str, spec: &str, volumes: &str, classes: &str, expected: Expect) {
        let view = View {
            claim: object(&format!(
                "metadata: {{name: data, namespace: default, uid: c, resourceVersion: '9'{metadata}}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 2Gi}}}}{spec}}}
status: {{phase: Pending}}"
            )),
            volumes: objects(volumes),
            classes: objects(classes),
        };
        expected.assert_eq(&plan(&view).to_string());
    }

    #[test]
    fn the_smallest_volume_that_satisfies_is_taken_step_by_step() {
        check(
            "",
            ", storageClassName: ''",
            VOLUMES,
            "",
            expect![[r#"
            patch persistentvolumes fitting: {"metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":"yes"},"resourceVersion":"3"},"spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"data","namespace":"default","resourceVersion":"9","uid":"c"}}}
        "#]],
        );
        let referred = VOLUMES.replace(
            "storage: 5Gi}",
            "storage: 5Gi}, claimRef: {namespace: default, name: data, uid: c}",
        );
        check(
            "",
            ", storageClassName: ''",
            &referred,
            "",
            expect![[r#"
            patch persistentvolumeclaims default/data: {"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes","pv.kubernetes.io/bound-by-controller":"yes"},"resourceVersion":"9"},"spec":{"volumeName":"fitting"}}
        "#]],
        );
        let annotated = ", annotations: {pv.kubernetes.io/bind-completed: 'yes'}";
        check(
            annotated,
            ", volumeName: fitting",
            &referred,
            "",
            expect![[r#"
            patch persistentvolumeclaims default/data/status: {"metadata":{"resourceVersion":"9"},"status":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"5Gi"},"phase":"Bound"}}
        "#]],
        );
        check(
            annotated,
            ", volumeName: gone",
            VOLUMES,
            "",
            expect![[r#"
            event Warning ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!
            patch persistentvolumeclaims default/data/status: {"metadata":{"resourceVersion":"9"},"status":{"phase":"Lost"}}
        "#]],
        );
    }

    #[test]
    fn without_a_volume_the_class_decides() {
        check(
            "",
            ", storageClassName: ''",
            "",
            "",
            expect![[r#"
            event Normal FailedBinding: no persistent volumes available for this claim and no storage class is set
        "#]],
        );
        check(
            "",
            ", storageClassName: fast",
            "",
            "",
            expect![[r#"
            event Warning ProvisioningFailed: storageclass.storage.k8s.io "fast" not found
        "#]],
        );
        let class = "metadata: {name: fast}\nprovisioner: example.com/disk";
        check(
            "",
            ", storageClassName: fast",
            VOLUMES,
            class,
            expect![[r#"
            patch persistentvolumeclaims default/data: {"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-provisioner":"example.com/disk","volume.kubernetes.io/storage-provisioner":"example.com/disk"},"resourceVersion":"9"}}
            event Normal ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/disk' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.
        "#]],
        );
        let late = format!("{class}\nvolumeBindingMode: WaitForFirstConsumer");
        check(
            "",
            ", storageClassName: fast",
            "",
            &late,
            expect![[r#"
            event Normal WaitForFirstConsumer: waiting for first consumer to be created before binding
        "#]],
        );
        let default = "metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}";
        check(
            "",
            "",
            "",
            default,
            expect![[r#"
            patch persistentvolumeclaims default/data: {"metadata":{"resourceVersion":"9"},"spec":{"storageClassName":"fast"}}
        "#]],
        );
    }
}
