//! Claims for the ephemeral volumes of pods: each is named after its pod and volume, and goes with the pod, which owns it.

use std::sync::Arc;

use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::{Fields, Value};
use async_trait::async_trait;
use client::{Cache, EventType, Key, Object, ObjectReference};
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup, controller_key};
use crate::model::{EphemeralVolume, Metadata, Pod};
use crate::owner::controller_reference;
use crate::plan::{Action, Announce, Create, Event, Plan};

pub const ROW: Row = Row {
    name: "ephemeral-volume",
    account: "ephemeral-volume-controller",
    queue: "ephemeral_volume",
    workers: 5,
    start,
};

struct Controller {
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<Metadata>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let pods = setup.cache::<Pod>(&POD);
    let claims = setup.cache::<Metadata>(&PERSISTENT_VOLUME_CLAIM);
    setup.watch(&pods, |pod| match pod.ephemeral_volumes().next() {
        Some(_) => vec![pod.key()],
        None => Vec::new(),
    });
    // A claim that was deleted under a pod that has not started yet is made again.
    setup.watch(&claims, |claim| controller_key(&claim.metadata, POD.kind));
    Box::new(Controller { pods, claims })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(pod) = self.pods.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let claim = |name: &str| self.claims.get(&pod.metadata.namespace, name);
        Ok(plan(&pod, claim))
    }
}

fn plan(pod: &Pod, claim: impl Fn(&str) -> Option<Arc<Metadata>>) -> Plan {
    let mut plan = Plan::default();
    if pod.metadata.is_deleting() || pod.is_finished() {
        return plan;
    }
    for (volume, template) in pod.ephemeral_volumes() {
        let name = pod.ephemeral_claim_name(volume);
        match claim(&name) {
            Some(claim) if is_owned_by(&claim, pod) => {}
            Some(_) => plan.actions.push(not_owner(pod, volume, &name)),
            None => plan.actions.push(create(pod, &name, template)),
        }
    }
    plan
}

fn is_owned_by(claim: &Metadata, pod: &Pod) -> bool {
    let owner = claim.metadata.controller();
    owner.is_some_and(|owner| owner.uid == pod.metadata.uid)
}

/// Somebody else's data is never given to a pod only because of its name.
fn not_owner(pod: &Pod, volume: &str, claim: &str) -> Action {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    Action::Event(Event {
        about: ObjectReference::new(&POD, &pod.metadata),
        kind: EventType::Warning,
        reason: "FailedBinding",
        message: format!(
            "ephemeral volume {volume}: PVC {namespace}/{claim} was not created for pod {namespace}/{name} (pod is not owner)"
        ),
    })
}

fn create(pod: &Pod, name: &str, template: &EphemeralVolume) -> Action {
    let template = template.claim_template();
    let mut metadata = json!({
        "name": name,
        "ownerReferences": [controller_reference(&POD, &pod.metadata)],
    });
    for field in ["annotations", "labels"] {
        if template["metadata"].has(field) {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    let claim: Value = json!({
        "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version(),
        "kind": PERSISTENT_VOLUME_CLAIM.kind,
        "metadata": metadata,
        "spec": template["spec"],
    });
    let mut create = Create::new(&PERSISTENT_VOLUME_CLAIM, &pod.metadata.namespace, claim);
    create.announce = Some(Announce {
        about: ObjectReference::new(&POD, &pod.metadata),
        success: ("SuccessfulCreate", "Created PersistentVolumeClaim ".to_owned()),
        failure: Some(("FailedBinding", "create PVC for ephemeral volume: ".into())),
    });
    Action::Create(create)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{object, objects};

    fn check(metadata: &str, claims: &str, expected: Expect) {
        let pod = object::<Pod>(&format!(
            "metadata: {{name: p, namespace: team, uid: u1{metadata}}}
spec:
  volumes:
  - {{name: rest, emptyDir: {{}}}}
  - {{name: data, persistentVolumeClaim: {{claimName: c}}}}
  - name: scratch
    ephemeral: {{volumeClaimTemplate: {{metadata: {{labels: {{a: b}}}}, spec: {{accessModes: [ReadWriteOnce]}}}}}}"
        ));
        let claims = objects::<Metadata>(claims);
        let claim = |name: &str| claims.iter().find(|claim| claim.metadata.name == name).cloned();
        expected.assert_eq(&plan(&pod, claim).to_string());
    }

    #[test]
    fn every_ephemeral_volume_has_a_claim_that_its_pod_owns() {
        check(
            "",
            "",
            expect![[r#"
            create persistentvolumeclaims in team: {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"labels":{"a":"b"},"name":"p-scratch","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Pod","name":"p","uid":"u1"}]},"spec":{"accessModes":["ReadWriteOnce"]}}
        "#]],
        );
        let owned = "metadata: {name: p-scratch, ownerReferences: [{kind: Pod, name: p, uid: u1, controller: true}]}";
        check("", owned, expect![""]);
        check(", deletionTimestamp: '2026-01-01T12:00:00Z'", "", expect![""]);
    }

    #[test]
    fn a_claim_of_somebody_else_is_not_taken() {
        let strange = "metadata: {name: p-scratch}";
        let older = "metadata: {name: p-scratch, ownerReferences: [{kind: Pod, name: p, uid: old, controller: true}]}";
        for claim in [strange, older] {
            check(
                "",
                claim,
                expect![[r#"
                    event Warning FailedBinding: ephemeral volume scratch: PVC team/p-scratch was not created for pod team/p (pod is not owner)
                "#]],
            );
        }
    }
}
