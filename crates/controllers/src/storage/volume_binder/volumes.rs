//! The phase of a volume, and what becomes of it when its claim goes.

use api::Fields;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use client::when::Moment;
use client::{EventType, ObjectReference};
use serde_json::json;

use super::model::{BOUND_BY_CONTROLLER, Claim, Volume};
use crate::plan::{Action, Event, Patch, Plan};
use crate::status;

/// On volumes that were provisioned for a claim: their provisioner deletes them.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

pub fn plan(volume: &Volume, claim: Option<&Claim>, now: Moment) -> Plan {
    let mut plan = Plan::default();
    let Some(reference) = &volume.spec.claim_ref else {
        tell_phase(&mut plan, volume, "Available", now);
        return plan;
    };
    if reference.uid.is_empty() {
        // Meant for a claim that has not taken it yet.
        tell_phase(&mut plan, volume, "Available", now);
        return plan;
    }
    match claim.filter(|claim| claim.metadata.uid == reference.uid) {
        None => release(&mut plan, volume, now),
        Some(claim) if claim.spec.volume_name == volume.metadata.name => tell_phase(&mut plan, volume, "Bound", now),
        // The claim is about to be bound to this volume, by its own plan.
        Some(claim) if claim.spec.volume_name.is_empty() => {}
        Some(_) if volume.metadata.annotations.contains_key(BOUND_BY_CONTROLLER) => {
            // The claim took another one: what was bound without being asked for is free again.
            let body = json!({
                "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}},
                "spec": {"claimRef": null},
            });
            let patch = Patch::new(&PERSISTENT_VOLUME, &volume.metadata, body);
            plan.actions
                .push(Action::Patch(patch.at_revision(&volume.metadata).by_update()));
        }
        Some(_) => tell_phase(&mut plan, volume, "Available", now),
    }
    plan
}

/// The data of a claim that is gone stays until someone clears it away.
fn release(plan: &mut Plan, volume: &Volume, now: Moment) {
    if volume.status.text("phase") == "Failed" {
        return;
    }
    let has_deleter = volume.metadata.annotations.contains_key(PROVISIONED_BY);
    let failure = match volume.spec.persistent_volume_reclaim_policy.as_str() {
        "Delete" if !has_deleter => {
            let name = &volume.metadata.name;
            let message = "no deletable volume plugin matched";
            let message = format!("error getting deleter volume plugin for volume {name:?}: {message}");
            Some(("VolumeFailedDelete", message))
        }
        "Recycle" => {
            let message = "No recycler plugin found for the volume!";
            Some(("VolumeFailedRecycle", message.to_owned()))
        }
        _ => None,
    };
    let Some((reason, message)) = failure else {
        tell_phase(plan, volume, "Released", now);
        return;
    };
    plan.actions.push(Action::Event(Event {
        about: ObjectReference::new(&PERSISTENT_VOLUME, &volume.metadata),
        kind: EventType::Warning,
        reason,
        message: message.clone(),
    }));
    tell_phase_because(plan, volume, "Failed", &message, now);
}

fn tell_phase(plan: &mut Plan, volume: &Volume, phase: &str, now: Moment) {
    tell_phase_because(plan, volume, phase, "", now);
}

fn tell_phase_because(plan: &mut Plan, volume: &Volume, phase: &str, message: &str, now: Moment) {
    if volume.status.text("phase") == phase {
        return;
    }
    let wanted = json!({"phase": phase, "message": message, "lastPhaseTransitionTime": now.to_time()});
    plan.status = status::patch(&PERSISTENT_VOLUME, &volume.metadata, &volume.status, wanted);
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object};

    fn check(spec: &str, claim: Option<&str>, expected: Expect) {
        let volume = object::<Volume>(&format!(
            "metadata: {{name: pv, resourceVersion: '3', annotations: {{pv.kubernetes.io/bound-by-controller: 'yes'}}}}
spec: {spec}
status: {{phase: Pending}}"
        ));
        let claim = claim.map(object::<Claim>);
        expected.assert_eq(&plan(&volume, claim.as_deref(), noon()).to_string());
    }

    #[test]
    fn the_phase_follows_the_claim() {
        const REFERENCE: &str = "{claimRef: {namespace: default, name: data, uid: c}}";
        let claim = |volume: &str| format!("{{metadata: {{name: data, uid: c}}, spec: {{volumeName: {volume}}}}}");
        check(
            "{}",
            None,
            expect![[r#"
            patch persistentvolumes pv/status: {"metadata":{"resourceVersion":"3"},"status":{"lastPhaseTransitionTime":"2026-01-01T12:00:00Z","phase":"Available"}}
        "#]],
        );
        check(
            "{claimRef: {namespace: default, name: data}}",
            None,
            expect![[r#"
            patch persistentvolumes pv/status: {"metadata":{"resourceVersion":"3"},"status":{"lastPhaseTransitionTime":"2026-01-01T12:00:00Z","phase":"Available"}}
        "#]],
        );
        check(
            REFERENCE,
            Some(&claim("pv")),
            expect![[r#"
            patch persistentvolumes pv/status: {"metadata":{"resourceVersion":"3"},"status":{"lastPhaseTransitionTime":"2026-01-01T12:00:00Z","phase":"Bound"}}
        "#]],
        );
        check(
            REFERENCE,
            None,
            expect![[r#"
            patch persistentvolumes pv/status: {"metadata":{"resourceVersion":"3"},"status":{"lastPhaseTransitionTime":"2026-01-01T12:00:00Z","phase":"Released"}}
        "#]],
        );
        check(
            REFERENCE,
            Some(&claim("other")),
            expect![[r#"
            patch persistentvolumes pv: {"metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":null},"resourceVersion":"3"},"spec":{"claimRef":null}}
        "#]],
        );
        check(
            "{claimRef: {namespace: default, name: data, uid: c}, persistentVolumeReclaimPolicy: Delete}",
            None,
            expect![[r#"
                event Warning VolumeFailedDelete: error getting deleter volume plugin for volume "pv": no deletable volume plugin matched
                patch persistentvolumes pv/status: {"metadata":{"resourceVersion":"3"},"status":{"lastPhaseTransitionTime":"2026-01-01T12:00:00Z","message":"error getting deleter volume plugin for volume \"pv\": no deletable volume plugin matched","phase":"Failed"}}
            "#]],
        );
        check(
            "{claimRef: {namespace: default, name: data, uid: c}, persistentVolumeReclaimPolicy: Recycle}",
            None,
            expect![[r#"
                event Warning VolumeFailedRecycle: No recycler plugin found for the volume!
                patch persistentvolumes pv/status: {"metadata":{"resourceVersion":"3"},"status":{"lastPhaseTransitionTime":"2026-01-01T12:00:00Z","message":"No recycler plugin found for the volume!","phase":"Failed"}}
            "#]],
        );
    }
}
