use expect_test::{Expect, expect};

use super::*;
use crate::testing::{noon, object, objects};

const SET: &str = "
metadata: {name: web-1, namespace: default, uid: set-uid, resourceVersion: '7', generation: 2}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: karve}], unknownField: kept}
status: {replicas: 0, observedGeneration: 1}
";

fn pod(name: &str, rest: &str) -> String {
    format!(
        "---
metadata:
  name: {name}
  namespace: default
  uid: {name}-uid
  resourceVersion: '5'
  labels: {{app: web}}
  ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: set-uid, controller: true}}]
{rest}
"
    )
}

fn check(set: &str, pods: &[String], error: Option<&str>, expected: Expect) {
    let candidates: Vec<Arc<Pod>> = objects(&format!("\n{}", pods.concat()));
    let view = View {
        resource: &REPLICA_SET,
        set: object(set),
        related: candidates.clone(),
        candidates,
        error: error.map(str::to_owned),
    };
    expected.assert_eq(&plan(&view, noon()).to_string());
}

const READY: &str = "spec: {nodeName: node}
status: {phase: Running, conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-01-01T11:59:50Z'}]}";

#[test]
fn missing_pods_are_made_from_the_template_with_all_its_fields() {
    check(
        SET,
        &[pod("a", READY)],
        None,
        expect![[r#"
            create pods in default: {"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-1-","labels":{"app":"web"},"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-1","uid":"set-uid"}]},"spec":{"containers":[{"image":"karve","name":"web"}],"unknownField":"kept"}}
            patch replicasets default/web-1/status: {"metadata":{"resourceVersion":"7"},"status":{"availableReplicas":1,"fullyLabeledReplicas":1,"observedGeneration":2,"readyReplicas":1,"replicas":1}}
        "#]],
    );
}

#[test]
fn finished_and_deleted_pods_do_not_count() {
    check(
        SET,
        &[pod("a", READY), pod("b", "status: {phase: Failed}"), pod("c", READY)],
        None,
        expect![[r#"
            patch replicasets default/web-1/status: {"metadata":{"resourceVersion":"7"},"status":{"availableReplicas":2,"fullyLabeledReplicas":2,"observedGeneration":2,"readyReplicas":2,"replicas":2}}
        "#]],
    );
}

#[test]
fn of_too_many_pods_the_least_useful_go() {
    check(
        SET,
        &[
            pod("ready", READY),
            pod("placed", "spec: {nodeName: node}\nstatus: {phase: Pending}"),
            pod("waiting", "status: {phase: Pending}"),
            pod("running", "spec: {nodeName: node}\nstatus: {phase: Running}"),
        ],
        None,
        expect![[r#"
            delete pods default/waiting
            delete pods default/placed
            patch replicasets default/web-1/status: {"metadata":{"resourceVersion":"7"},"status":{"availableReplicas":1,"fullyLabeledReplicas":4,"observedGeneration":2,"readyReplicas":1,"replicas":4}}
        "#]],
    );
}

#[test]
fn orphans_are_adopted_and_strangers_released_before_anything_else() {
    let orphan = "---
metadata: {name: orphan, namespace: default, uid: o, resourceVersion: '4', labels: {app: web}}
";
    let stranger = pod("stranger", "").replace("app: web", "app: other");
    check(
        SET,
        &[orphan.to_owned(), stranger],
        None,
        expect![[r#"
            adopt: patch pods default/orphan: {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-1","uid":"set-uid"}],"resourceVersion":"4","uid":"o"}}
            patch pods default/stranger: {"metadata":{"ownerReferences":[],"resourceVersion":"5","uid":"stranger-uid"}}
            patch replicasets default/web-1/status: {"metadata":{"resourceVersion":"7"},"status":{"observedGeneration":2}}
        "#]],
    );
}

#[test]
fn availability_comes_after_the_minimum_of_ready_seconds() {
    let set = SET.replace("replicas: 2\n", "replicas: 1\n  minReadySeconds: 30\n");
    check(
        &set,
        &[pod("a", READY)],
        None,
        expect![[r#"
            patch replicasets default/web-1/status: {"metadata":{"resourceVersion":"7"},"status":{"fullyLabeledReplicas":1,"observedGeneration":2,"readyReplicas":1,"replicas":1}}
            again after 20s
        "#]],
    );
}

#[test]
fn a_failure_to_create_shows_as_a_condition() {
    let set = SET.replace("replicas: 2\n", "replicas: 1\n");
    check(
        &set,
        &[],
        Some("exceeded quota"),
        expect![[r#"
            create pods in default: {"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-1-","labels":{"app":"web"},"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-1","uid":"set-uid"}]},"spec":{"containers":[{"image":"karve","name":"web"}],"unknownField":"kept"}}
            patch replicasets default/web-1/status: {"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"exceeded quota","reason":"FailedCreate","status":"True","type":"ReplicaFailure"}],"observedGeneration":2}}
        "#]],
    );
}

#[test]
fn a_set_that_is_being_deleted_creates_nothing() {
    let set = SET.replace(
        "generation: 2",
        "generation: 2, deletionTimestamp: '2026-01-01T12:00:00Z'",
    );
    check(
        &set,
        &[],
        None,
        expect![[r#"
            patch replicasets default/web-1/status: {"metadata":{"resourceVersion":"7"},"status":{"observedGeneration":2}}
        "#]],
    );
}

#[test]
fn a_replication_controller_selects_by_a_plain_map() {
    let set: Arc<ReplicaSet> = object("metadata: {name: rc}\nspec: {selector: {app: web}}");
    assert_eq!(
        selector(&set).requirements,
        [Requirement::Equals("app".to_owned(), "web".to_owned())]
    );
}
