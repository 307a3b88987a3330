//! The end of a volume: its node removes the data, then the object goes.

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::local_volumes::{DATA_DELETED, DELETE_DATA};
use client::{EventType, ObjectReference};
use serde_json::json;

use super::model::Volume;
use crate::plan::{Action, Delete, Event, Patch, Plan};

/// Keeps the object of a volume until its data is gone, also when somebody deletes the object first.
pub const FINALIZER: &str = "karve.dev/local-volume-data";

pub fn plan(volume: &Volume, has_node: bool) -> Plan {
    let mut plan = Plan::default();
    if !volume.is_local() {
        return plan;
    }
    let deletes = volume.spec.persistent_volume_reclaim_policy == "Delete";
    match volume.status.phase.as_str() {
        "Released" if deletes => reclaim(&mut plan, volume, has_node),
        "Bound" => {}
        // Data that is to be kept, or that no claim ever had, outlives the object.
        _ if volume.metadata.is_deleting() => let_go(&mut plan, volume),
        _ => {}
    }
    plan
}

fn reclaim(plan: &mut Plan, volume: &Volume, has_node: bool) {
    if volume.says(DATA_DELETED) {
        remove(plan, volume);
        return;
    }
    if !has_node {
        let node = volume.node();
        plan.actions.push(Action::Event(Event {
            about: ObjectReference::new(&PERSISTENT_VOLUME, &volume.metadata),
            kind: EventType::Warning,
            reason: "VolumeDataLeftBehind",
            message: format!("node {node:?} was removed from the cluster; the data of the volume remains on its disk"),
        }));
        remove(plan, volume);
        return;
    }
    if !volume.says(DELETE_DATA) {
        let body = json!({"metadata": {"annotations": {DELETE_DATA: "true"}}});
        let patch = Patch::new(&PERSISTENT_VOLUME, &volume.metadata, body);
        // At this revision the volume was Released: a claim that takes it in between keeps its data.
        plan.actions
            .push(Action::Patch(patch.at_revision(&volume.metadata).by_update()));
    }
}

fn remove(plan: &mut Plan, volume: &Volume) {
    if !volume.metadata.is_deleting() {
        let mut delete = Delete::new(&PERSISTENT_VOLUME, &volume.metadata);
        delete.only_at = volume.metadata.resource_version.clone();
        plan.actions.push(Action::Delete(delete));
        return;
    }
    let_go(plan, volume);
}

fn let_go(plan: &mut Plan, volume: &Volume) {
    let finalizers = &volume.metadata.finalizers;
    let left: Vec<&String> = finalizers.iter().filter(|known| *known != FINALIZER).collect();
    if left.len() < finalizers.len() {
        let patch = Patch::new(
            &PERSISTENT_VOLUME,
            &volume.metadata,
            json!({"metadata": {"finalizers": left}}),
        );
        plan.actions
            .push(Action::Patch(patch.at_revision(&volume.metadata).by_update()));
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::object;

    fn check(more: &str, annotations: &str, policy: &str, phase: &str, has_node: bool, expected: Expect) {
        let volume = object::<Volume>(&format!(
            "metadata: {{name: pvc-1, resourceVersion: '3', finalizers: [kubernetes.io/pv-protection, \
             karve.dev/local-volume-data], labels: {{karve.dev/node: n1}}, annotations: \
             {{karve.dev/provisioned-by: local{annotations}}}{more}}}
spec: {{persistentVolumeReclaimPolicy: {policy}}}
status: {{phase: {phase}}}"
        ));
        expected.assert_eq(&plan(&volume, has_node).to_string());
    }

    const ASKED: &str = ", karve.dev/delete-data: 'true'";
    const DONE: &str = ", karve.dev/delete-data: 'true', karve.dev/data-deleted: 'true'";
    const DELETING: &str = ", deletionTimestamp: '2026-01-01T12:00:00Z'";

    #[test]
    fn the_node_removes_the_data_before_the_object_goes() {
        check(
            "",
            "",
            "Delete",
            "Released",
            true,
            expect![[r#"
            patch persistentvolumes pvc-1: {"metadata":{"annotations":{"karve.dev/delete-data":"true"},"resourceVersion":"3"}}
        "#]],
        );
        check("", ASKED, "Delete", "Released", true, expect![""]);
        check(DELETING, ASKED, "Delete", "Released", true, expect![""]);
        check(
            "",
            DONE,
            "Delete",
            "Released",
            true,
            expect![[r#"
            delete persistentvolumes pvc-1
        "#]],
        );
        check(
            DELETING,
            DONE,
            "Delete",
            "Released",
            true,
            expect![[r#"
            patch persistentvolumes pvc-1: {"metadata":{"finalizers":["kubernetes.io/pv-protection"],"resourceVersion":"3"}}
        "#]],
        );
    }

    #[test]
    fn data_that_is_bound_or_retained_is_never_asked_to_be_removed() {
        check("", "", "Delete", "Bound", true, expect![""]);
        check(DELETING, "", "Delete", "Bound", true, expect![""]);
        check("", "", "Retain", "Released", true, expect![""]);
        check("", DONE, "Retain", "Released", true, expect![""]);
        check(
            DELETING,
            "",
            "Retain",
            "Released",
            true,
            expect![[r#"
            patch persistentvolumes pvc-1: {"metadata":{"finalizers":["kubernetes.io/pv-protection"],"resourceVersion":"3"}}
        "#]],
        );
    }

    #[test]
    fn a_node_that_is_gone_is_not_waited_for() {
        check(
            "",
            ASKED,
            "Delete",
            "Released",
            false,
            expect![[r#"
            event Warning VolumeDataLeftBehind: node "n1" was removed from the cluster; the data of the volume remains on its disk
            delete persistentvolumes pvc-1
        "#]],
        );
    }
}
