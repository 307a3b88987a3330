use expect_test::{Expect, expect};

use super::*;
use crate::testing::{noon, object, objects};

/// Three replicas, of which one more may be there and none may be missing.
const DEPLOYMENT_YAML: &str = "
metadata:
  name: web
  namespace: default
  uid: web-uid
  resourceVersion: '9'
  generation: 2
  annotations: {note: hello, kubectl.kubernetes.io/last-applied-configuration: '{}'}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: 'web:2'}]}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  progressDeadlineSeconds: 600
";

/// A ReplicaSet of an image, with its wanted, existing and available replicas.
fn set(name: &str, image: &str, revision: u32, counts: [u32; 3]) -> String {
    let [wanted, existing, available] = counts;
    format!(
        "
---
metadata:
  name: {name}
  namespace: default
  uid: {name}-uid
  resourceVersion: '5'
  generation: 1
  creationTimestamp: '2026-01-01T10:0{revision}:00Z'
  labels: {{app: web}}
  annotations:
    note: hello
    deployment.kubernetes.io/revision: '{revision}'
    deployment.kubernetes.io/desired-replicas: '3'
    deployment.kubernetes.io/max-replicas: '4'
  ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: web, uid: web-uid, controller: true}}]
spec:
  replicas: {wanted}
  selector: {{matchLabels: {{app: web, pod-template-hash: {name}}}}}
  template: {{metadata: {{labels: {{app: web, pod-template-hash: {name}}}}}, spec: {{containers: [{{name: web, image: 'web:{image}'}}]}}}}
status: {{replicas: {existing}, readyReplicas: {available}, availableReplicas: {available}, observedGeneration: 1}}"
    )
}

fn view(deployment: &str, sets: &[String]) -> View {
    let candidates: Vec<Arc<ReplicaSet>> = objects(&sets.concat());
    View {
        deployment: object(deployment),
        names: candidates.iter().map(|set| set.metadata.name.clone()).collect(),
        candidates,
        unfinished: HashMap::new(),
    }
}

fn check(deployment: &str, sets: &[String], expected: Expect) {
    expected.assert_eq(&plan(&view(deployment, sets), noon()).to_string());
}

#[test]
fn a_new_deployment_gets_a_replica_set_of_its_template() {
    check(
        DEPLOYMENT_YAML,
        &[],
        expect![[r#"
        create replicasets in default: {"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"3","deployment.kubernetes.io/max-replicas":"4","deployment.kubernetes.io/revision":"1","note":"hello"},"labels":{"app":"web","pod-template-hash":"849fb4b4d5"},"name":"web-849fb4b4d5","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"Deployment","name":"web","uid":"web-uid"}]},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web","pod-template-hash":"849fb4b4d5"}},"template":{"metadata":{"labels":{"app":"web","pod-template-hash":"849fb4b4d5"}},"spec":{"containers":[{"image":"web:2","name":"web"}]}}}}
        patch deployments default/web/status: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"1"},"resourceVersion":"9"}}
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Created new replica set \"web-849fb4b4d5\"","reason":"NewReplicaSetCreated","status":"True","type":"Progressing"}],"observedGeneration":2,"unavailableReplicas":3}}
        again after 601s
    "#]],
    );
}

#[test]
fn the_first_set_is_followed_until_it_is_available() {
    let deployment = format!(
        "{DEPLOYMENT_YAML}
status:
  observedGeneration: 2
  conditions:
  - {{type: Available, status: 'False', reason: MinimumReplicasUnavailable, message: m, lastUpdateTime: '2026-01-01T11:59:00Z', lastTransitionTime: '2026-01-01T11:59:00Z'}}
  - {{type: Progressing, status: 'True', reason: NewReplicaSetCreated, message: m, lastUpdateTime: '2026-01-01T11:59:00Z', lastTransitionTime: '2026-01-01T11:59:00Z'}}
"
    )
    .replace("note: hello,", "note: hello, deployment.kubernetes.io/revision: '1',");
    // Some progress restarts the clock.
    check(
        &deployment,
        &[set("web-new", "2", 1, [3, 3, 1])],
        expect![[r#"
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":1,"conditions":[{"lastTransitionTime":"2026-01-01T11:59:00Z","lastUpdateTime":"2026-01-01T11:59:00Z","message":"m","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"},{"lastTransitionTime":"2026-01-01T11:59:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-new\" is progressing.","reason":"ReplicaSetUpdated","status":"True","type":"Progressing"}],"readyReplicas":1,"replicas":3,"unavailableReplicas":2,"updatedReplicas":3}}
        again after 601s
    "#]],
    );
    // All available: done.
    check(
        &deployment,
        &[set("web-new", "2", 1, [3, 3, 3])],
        expect![[r#"
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T11:59:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-new\" has successfully progressed.","reason":"NewReplicaSetAvailable","status":"True","type":"Progressing"}],"readyReplicas":3,"replicas":3,"updatedReplicas":3}}
    "#]],
    );
    // No change since eleven minutes: timed out.
    let late = deployment.replace("11:59:00Z", "11:49:00Z");
    let stuck = late.replace(
        "observedGeneration: 2",
        "observedGeneration: 2\n  replicas: 3\n  updatedReplicas: 3\n  unavailableReplicas: 3",
    );
    check(
        &stuck,
        &[set("web-new", "2", 1, [3, 3, 0])],
        expect![[r#"
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T11:49:00Z","lastUpdateTime":"2026-01-01T11:49:00Z","message":"m","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-new\" has timed out progressing.","reason":"ProgressDeadlineExceeded","status":"False","type":"Progressing"}]}}
    "#]],
    );
}

#[test]
fn a_rollout_goes_up_by_the_surge_and_then_down() {
    let old = |wanted, available| set("web-old", "1", 1, [wanted, wanted, available]);
    // A new template: a new set with as many replicas as the surge allows.
    check(
        DEPLOYMENT_YAML,
        &[old(3, 3)],
        expect![[r#"
        create replicasets in default: {"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"3","deployment.kubernetes.io/max-replicas":"4","deployment.kubernetes.io/revision":"2","note":"hello"},"labels":{"app":"web","pod-template-hash":"849fb4b4d5"},"name":"web-849fb4b4d5","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"Deployment","name":"web","uid":"web-uid"}]},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web","pod-template-hash":"849fb4b4d5"}},"template":{"metadata":{"labels":{"app":"web","pod-template-hash":"849fb4b4d5"}},"spec":{"containers":[{"image":"web:2","name":"web"}]}}}}
        patch deployments default/web/status: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"},"resourceVersion":"9"}}
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Created new replica set \"web-849fb4b4d5\"","reason":"NewReplicaSetCreated","status":"True","type":"Progressing"}],"observedGeneration":2,"readyReplicas":3,"replicas":3,"unavailableReplicas":1}}
        again after 601s
    "#]],
    );
    // The new pod is not available yet: nothing moves.
    check(
        DEPLOYMENT_YAML,
        &[old(3, 3), set("web-new", "2", 2, [1, 1, 0])],
        expect![[r#"
        patch deployments default/web/status: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"},"resourceVersion":"9"}}
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-new\" is progressing.","reason":"ReplicaSetUpdated","status":"True","type":"Progressing"}],"observedGeneration":2,"readyReplicas":3,"replicas":4,"unavailableReplicas":1,"updatedReplicas":1}}
        again after 601s
    "#]],
    );
    // It is: an old one goes.
    check(
        DEPLOYMENT_YAML,
        &[old(3, 3), set("web-new", "2", 2, [1, 1, 1])],
        expect![[r#"
        patch replicasets default/web-old: {"metadata":{"resourceVersion":"5"},"spec":{"replicas":2}}
        patch deployments default/web/status: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"},"resourceVersion":"9"}}
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":4,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-new\" is progressing.","reason":"ReplicaSetUpdated","status":"True","type":"Progressing"}],"observedGeneration":2,"readyReplicas":4,"replicas":4,"updatedReplicas":1}}
        again after 601s
    "#]],
    );
    // Old pods that do not work go at once.
    check(
        DEPLOYMENT_YAML,
        &[old(3, 1), set("web-new", "2", 2, [1, 1, 1])],
        expect![[r#"
        patch replicasets default/web-old: {"metadata":{"resourceVersion":"5"},"spec":{"replicas":2}}
        patch deployments default/web/status: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"},"resourceVersion":"9"}}
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":2,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-new\" is progressing.","reason":"ReplicaSetUpdated","status":"True","type":"Progressing"}],"observedGeneration":2,"readyReplicas":2,"replicas":4,"unavailableReplicas":1,"updatedReplicas":1}}
        again after 601s
    "#]],
    );
}

#[test]
fn going_back_to_an_old_template_renumbers_its_set() {
    check(
        DEPLOYMENT_YAML,
        &[set("web-back", "2", 1, [0, 0, 0]), set("web-bad", "3", 2, [3, 3, 3])],
        expect![[r#"
            patch replicasets default/web-back: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"3","deployment.kubernetes.io/revision-history":"1"},"resourceVersion":"5"},"spec":{"replicas":1}}
            patch deployments default/web/status: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"3"},"resourceVersion":"9"}}
            patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-back\" is progressing.","reason":"ReplicaSetUpdated","status":"True","type":"Progressing"}],"observedGeneration":2,"readyReplicas":3,"replicas":3,"unavailableReplicas":1}}
            again after 601s
        "#]],
    );
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let deployment = DEPLOYMENT_YAML.replace(
        "{type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
        "{type: Recreate}",
    );
    check(
        &deployment,
        &[set("web-old", "1", 1, [3, 3, 3])],
        expect![[r#"
        patch replicasets default/web-old: {"metadata":{"annotations":{"deployment.kubernetes.io/max-replicas":"3"},"resourceVersion":"5"},"spec":{"replicas":0}}
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment \"web\" is progressing.","reason":"ReplicaSetUpdated","status":"True","type":"Progressing"}],"observedGeneration":2,"readyReplicas":3,"replicas":3}}
        again after 601s
    "#]],
    );
    let mut waiting = view(&deployment, &[set("web-old", "1", 1, [0, 0, 0])]);
    waiting.unfinished.insert("web-old-uid".to_owned(), 1);
    let text = plan(&waiting, noon()).to_string();
    assert!(!text.contains("create"), "{text}");
    waiting.unfinished.clear();
    let text = plan(&waiting, noon()).to_string();
    assert!(
        text.contains("create replicasets") && text.contains("\"replicas\":3"),
        "{text}"
    );
}

#[test]
fn scaling_in_the_middle_of_a_rollout_is_shared_out() {
    let deployment = DEPLOYMENT_YAML.replace("replicas: 3", "replicas: 10");
    check(
        &deployment,
        &[set("web-old", "1", 1, [2, 2, 2]), set("web-new", "2", 2, [2, 2, 1])],
        expect![[r#"
            patch replicasets default/web-old: {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"10","deployment.kubernetes.io/max-replicas":"11"},"resourceVersion":"5"},"spec":{"replicas":5}}
            patch replicasets default/web-new: {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"10","deployment.kubernetes.io/max-replicas":"11"},"resourceVersion":"5"},"spec":{"replicas":6}}
            patch deployments default/web/status: {"metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"},"resourceVersion":"9"}}
            patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":2,"readyReplicas":3,"replicas":4,"unavailableReplicas":8,"updatedReplicas":2}}
        "#]],
    );
}

#[test]
fn a_paused_deployment_is_scaled_but_not_rolled_out() {
    let deployment = DEPLOYMENT_YAML.replace("replicas: 3", "replicas: 5\n  paused: true");
    check(
        &deployment,
        &[set("web-old", "1", 1, [3, 3, 3])],
        expect![[r#"
        patch replicasets default/web-old: {"metadata":{"annotations":{"deployment.kubernetes.io/desired-replicas":"5","deployment.kubernetes.io/max-replicas":"6"},"resourceVersion":"5"},"spec":{"replicas":5}}
        patch deployments default/web/status: {"metadata":{"resourceVersion":"9"},"status":{"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment is paused","reason":"DeploymentPaused","status":"Unknown","type":"Progressing"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":2,"readyReplicas":3,"replicas":3,"unavailableReplicas":2}}
    "#]],
    );
}

#[test]
fn old_sets_beyond_the_limit_are_deleted_after_a_rollout() {
    let deployment = DEPLOYMENT_YAML.replace("replicas: 3", "replicas: 3\n  revisionHistoryLimit: 1");
    let sets = [
        set("web-a", "a", 1, [0, 0, 0]),
        set("web-b", "b", 2, [0, 0, 0]),
        set("web-c", "c", 3, [0, 0, 0]),
        set("web-new", "2", 4, [3, 3, 3]),
    ];
    let text = plan(&view(&deployment, &sets), noon()).to_string();
    let deletions: Vec<&str> = text.lines().filter(|line| line.starts_with("delete")).collect();
    assert_eq!(
        deletions,
        ["delete replicasets default/web-a", "delete replicasets default/web-b"]
    );
}

#[test]
fn a_taken_name_counts_as_a_collision() {
    let mut view = view(DEPLOYMENT_YAML, &[]);
    let hash = crate::workloads::template::hash(&view.deployment.template(), 0);
    view.names.push(format!("web-{hash}"));
    let text = plan(&view, noon()).to_string();
    assert!(
        text.contains("\"collisionCount\":1") && !text.contains("create"),
        "{text}"
    );
}

#[test]
fn a_settled_deployment_is_left_alone() {
    let settled = format!(
        "{DEPLOYMENT_YAML}
status:
  observedGeneration: 2
  replicas: 3
  updatedReplicas: 3
  readyReplicas: 3
  availableReplicas: 3
  conditions:
  - {{type: Progressing, status: 'True', reason: NewReplicaSetAvailable, message: m}}
  - {{type: Available, status: 'True', reason: MinimumReplicasAvailable, message: m}}
"
    )
    .replace("note: hello,", "note: hello, deployment.kubernetes.io/revision: '1',");
    check(&settled, &[set("web-new", "2", 1, [3, 3, 3])], expect![[""]]);
}
