//! The volume claims of a StatefulSet's pods: made with the pod, kept when it goes, unless the set says otherwise.

use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::stateful_set::STATEFUL_SET;
use api::{Fields, ObjectMeta, OwnerReference, Resource, Value};
use client::ObjectReference;
use serde_json::json;

use super::Planner;
use crate::claim::reference;
use crate::model::{Metadata, Pod};
use crate::owner::controller_reference;
use crate::plan::{Action, Announce, Create, Patch};

impl Planner<'_> {
    /// Makes the missing claims of a pod. False while one that is there is about to go.
    pub fn make_claims(&mut self, ordinal: i64) -> bool {
        let set = self.set;
        for template in &set.spec.volume_claim_templates {
            let name = set.claim_name(template, ordinal);
            match self.view.claims.get(&name) {
                Some(claim) if claim.metadata.is_deleting() || self.is_left_over(claim, ordinal) => return false,
                Some(_) => {}
                None => self.make_claim(template, &name, ordinal),
            }
        }
        true
    }

    /// A claim that belongs to an earlier pod of this name goes with it.
    fn is_left_over(&self, claim: &Metadata, ordinal: i64) -> bool {
        let pod = self.set.pod_name(ordinal);
        let owners = &claim.metadata.owner_references;
        owners.iter().any(|owner| owner.kind == POD.kind && owner.name == pod)
    }

    fn make_claim(&mut self, template: &Value, name: &str, ordinal: i64) {
        let set = self.set;
        let mut claim = template.clone();
        claim.set("apiVersion", PERSISTENT_VOLUME_CLAIM.api_version());
        claim.set("kind", PERSISTENT_VOLUME_CLAIM.kind);
        claim.remove("status");
        let metadata = claim.ensure("metadata");
        metadata.set("name", name);
        for (key, value) in &set.spec.selector.match_labels {
            metadata.ensure("labels").set(key, value.as_str());
        }
        if set.spec.persistent_volume_claim_retention_policy.deletes_with_set() {
            metadata.set(
                "ownerReferences",
                vec![controller_reference(&STATEFUL_SET, &set.metadata)],
            );
        }
        let (pod, owner) = (set.pod_name(ordinal), &set.metadata.name);
        let mut create = Create::new(&PERSISTENT_VOLUME_CLAIM, &set.metadata.namespace, claim);
        create.announce = Some(Announce {
            about: ObjectReference::new(&STATEFUL_SET, &set.metadata),
            success: (
                "SuccessfulCreate",
                format!("create Claim {name} Pod {pod} in StatefulSet {owner} success"),
            ),
            failure: Some(("FailedCreate", "create Claim in StatefulSet failed error: ".into())),
        });
        self.plan.actions.push(Action::Create(create));
    }

    /// Has the claims of a pod owned by whatever they are to go with; `condemned` is a pod that is scaled away.
    pub fn mark_claims(&mut self, ordinal: i64, condemned: Option<&Pod>) {
        let set = self.set;
        let policy = &set.spec.persistent_volume_claim_retention_policy;
        let owner: Option<(&'static Resource, &ObjectMeta)> = match condemned {
            Some(pod) if policy.deletes_when_scaled() => Some((&POD, &pod.metadata)),
            _ if policy.deletes_with_set() => Some((&STATEFUL_SET, &set.metadata)),
            _ => None,
        };
        let pod = set.pod_name(ordinal);
        let is_ours = |reference: &OwnerReference| {
            reference.uid == set.metadata.uid || (reference.kind == POD.kind && reference.name == pod)
        };
        for name in set.claim_names(ordinal) {
            let Some(claim) = self.view.claims.get(&name) else {
                continue;
            };
            let references = &claim.metadata.owner_references;
            // An earlier set of this name had the claim, and takes it with it.
            let stale = |one: &OwnerReference| {
                one.kind == STATEFUL_SET.kind && one.name == set.metadata.name && one.uid != set.metadata.uid
            };
            if references.iter().any(stale) {
                continue;
            }
            let (ours, others): (Vec<_>, Vec<_>) = references.iter().partition(|one| is_ours(one));
            // Two controllers cannot have one claim, and the other one was there first.
            let owner = owner.filter(|_| !others.iter().any(|one| one.controller));
            let right = match owner {
                Some((_, metadata)) => matches!(ours[..], [one] if one.uid == metadata.uid && one.controller),
                None => ours.is_empty(),
            };
            if right || claim.metadata.is_deleting() {
                continue;
            }
            let mut owners: Vec<Value> = others.into_iter().map(reference).collect();
            owners.extend(owner.map(|(resource, metadata)| controller_reference(resource, metadata)));
            let body = json!({"metadata": {"ownerReferences": owners}});
            let patch = Patch::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata, body);
            let patch = patch.at_revision(&claim.metadata).by_update();
            self.plan.actions.push(Action::Patch(patch));
        }
    }
}
