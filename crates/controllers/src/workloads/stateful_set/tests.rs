use expect_test::{Expect, expect};

use super::*;
use crate::plan::Action;
use crate::testing::{noon, object, objects, values};

const SET: &str = "
metadata: {name: web, namespace: default, uid: set-uid, resourceVersion: '7', generation: 2}
spec:
  replicas: 3
  serviceName: peers
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: v2}]}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}
status: {currentRevision: web-old}
";

fn revision(name: &str, number: i64, image: &str) -> String {
    format!(
        "---
metadata:
  name: web-{name}
  namespace: default
  uid: {name}
  resourceVersion: '3'
  labels: {{app: web}}
  ownerReferences: [{{apiVersion: apps/v1, kind: StatefulSet, name: web, uid: set-uid, controller: true}}]
revision: {number}
data: {{spec: {{template: {{$patch: replace, metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: web, image: {image}}}]}}}}}}}}
"
    )
}

fn pod(ordinal: i64, revision: &str, state: &str) -> String {
    let ready = if state == "Ready" { "True" } else { "False" };
    let phase = if matches!(state, "Failed" | "Pending") {
        state
    } else {
        "Running"
    };
    let deleting = if state == "Leaving" {
        "deletionTimestamp: '2026-01-01T12:00:00Z'"
    } else {
        "generation: 1"
    };
    format!(
        "---
metadata:
  name: web-{ordinal}
  namespace: default
  uid: uid-{ordinal}
  resourceVersion: '5'
  {deleting}
  labels:
    app: web
    controller-revision-hash: web-{revision}
    statefulset.kubernetes.io/pod-name: web-{ordinal}
    apps.kubernetes.io/pod-index: '{ordinal}'
  ownerReferences: [{{apiVersion: apps/v1, kind: StatefulSet, name: web, uid: set-uid, controller: true}}]
spec: {{nodeName: node}}
status: {{phase: {phase}, conditions: [{{type: Ready, status: '{ready}', lastTransitionTime: '2026-01-01T11:59:50Z'}}]}}
"
    )
}

fn view(set: &str, pods: &[String]) -> View {
    View {
        set: object(set),
        candidates: objects(&format!("\n{}", pods.concat())),
        revisions: objects(&format!("\n{}{}", revision("old", 1, "v1"), revision("new", 2, "v2"))),
        claims: HashMap::new(),
    }
}

/// The plan's actions, creations in short.
fn actions(plan: &Plan) -> String {
    let lines = plan.actions.iter().map(|action| match action {
        Action::Create(create) => {
            let (metadata, spec) = (&create.object["metadata"], &create.object["spec"]);
            let image = &spec["containers"][0]["image"];
            format!("create {} {} {image}\n", create.resource.plural, metadata["name"])
        }
        other => format!("{other}\n"),
    });
    lines.collect()
}

fn check(set: &str, pods: &[String], expected: Expect) {
    expected.assert_eq(&actions(&plan(&view(set, pods), noon())));
}

#[test]
fn pods_have_names_labels_and_a_place_in_dns() {
    let set = SET.replace("status: {currentRevision: web-old}", "");
    let plan = plan(&view(&set, &[]), noon());
    let Some(Action::Create(create)) = plan.actions.first() else {
        panic!("{plan}")
    };
    expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","labels":{"app":"web","apps.kubernetes.io/pod-index":"0","controller-revision-hash":"web-new","statefulset.kubernetes.io/pod-name":"web-0"},"name":"web-0","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"StatefulSet","name":"web","uid":"set-uid"}]},"spec":{"containers":[{"image":"v2","name":"web"}],"hostname":"web-0","subdomain":"peers"}}"#]].assert_eq(&create.object.to_string());
}

#[test]
fn pods_come_one_by_one_each_when_the_one_before_is_ready() {
    check(
        SET,
        &[],
        expect![[r#"
        create pods "web-0" "v2"
    "#]],
    );
    check(SET, &[pod(0, "new", "Running")], expect![[r#""#]]);
    check(
        SET,
        &[pod(0, "new", "Ready")],
        expect![[r#"
        create pods "web-1" "v2"
    "#]],
    );
    check(
        SET,
        &[pod(0, "new", "Ready"), pod(2, "new", "Ready")],
        expect![[r#"
        create pods "web-1" "v2"
    "#]],
    );
}

#[test]
fn parallel_sets_do_not_wait() {
    let set = SET.replace("replicas: 3", "replicas: 3\n  podManagementPolicy: Parallel");
    check(
        &set,
        &[pod(1, "new", "Running")],
        expect![[r#"
        create pods "web-0" "v2"
        create pods "web-2" "v2"
    "#]],
    );
}

#[test]
fn pods_go_from_the_highest_down_and_sick_ones_halt_it() {
    let set = SET.replace("replicas: 3", "replicas: 1");
    let pods = |states: [&str; 3]| [0, 1, 2].map(|ordinal| pod(ordinal, "new", states[ordinal as usize]));
    check(
        &set,
        &pods(["Ready", "Ready", "Ready"]),
        expect![[r#"
        delete pods default/web-2
    "#]],
    );
    check(&set, &pods(["Ready", "Ready", "Leaving"]), expect![[r#""#]]);
    check(&set, &pods(["Ready", "Running", "Running"]), expect![[r#""#]]);
    check(
        &set,
        &pods(["Ready", "Ready", "Running"]),
        expect![[r#"
        delete pods default/web-2
    "#]],
    );
}

#[test]
fn old_templates_are_replaced_from_the_highest_ordinal_down() {
    let pods = |states: [(&str, &str); 3]| {
        [0, 1, 2].map(|ordinal| pod(ordinal, states[ordinal as usize].0, states[ordinal as usize].1))
    };
    let old = ("old", "Ready");
    check(
        SET,
        &pods([old, old, old]),
        expect![[r#"
        delete pods default/web-2
    "#]],
    );
    check(
        SET,
        &pods([old, old, ("new", "Ready")]),
        expect![[r#"
        delete pods default/web-1
    "#]],
    );
    check(SET, &pods([old, old, ("new", "Running")]), expect![[r#""#]]);
    let set = SET.replace("partition: 0", "partition: 2");
    check(&set, &pods([old, old, ("new", "Ready")]), expect![[r#""#]]);
    let set = SET.replace("partition: 0", "partition: 0, maxUnavailable: 2");
    check(
        &set,
        &pods([old, old, old]),
        expect![[r#"
        delete pods default/web-2
        delete pods default/web-1
    "#]],
    );
}

#[test]
fn below_the_partition_pods_come_back_with_the_template_they_had() {
    let set = SET.replace("partition: 0", "partition: 1");
    check(
        &set,
        &[],
        expect![[r#"
        create pods "web-0" "v1"
    "#]],
    );
    check(
        &set,
        &[pod(0, "old", "Ready")],
        expect![[r#"
        create pods "web-1" "v2"
    "#]],
    );
}

#[test]
fn finished_pods_are_made_anew() {
    check(
        SET,
        &[pod(0, "new", "Failed")],
        expect![[r#"
        event Warning RecreatingFailedPod: StatefulSet default/web is recreating failed Pod web-0
        delete pods default/web-0
    "#]],
    );
}

#[test]
fn claims_come_before_their_pods_and_go_as_the_policy_says() {
    let set = format!(
        "{}  volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce]}}}}]
  persistentVolumeClaimRetentionPolicy: {{whenDeleted: Retain, whenScaled: Delete}}
",
        SET.replace("replicas: 3", "replicas: 1")
            .replace("status: {currentRevision: web-old}\n", "")
    );
    check(
        &set,
        &[],
        expect![[r#"
        create persistentvolumeclaims "data-web-0" null
        create pods "web-0" "v2"
    "#]],
    );
    let mut view = view(&set, &[pod(0, "new", "Ready"), pod(1, "new", "Ready")]);
    for ordinal in 0..2 {
        let claim = format!("metadata: {{name: data-web-{ordinal}, namespace: default, resourceVersion: '4'}}");
        view.claims.insert(format!("data-web-{ordinal}"), object(&claim));
    }
    expect![[r#"
        patch persistentvolumeclaims default/data-web-1: {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Pod","name":"web-1","uid":"uid-1"}],"resourceVersion":"4"}}
        delete pods default/web-1
    "#]].assert_eq(&actions(&plan(&view, noon())));
}

#[test]
fn claims_of_other_controllers_are_left_to_them() {
    let set = format!(
        "{}  volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce]}}}}]
  persistentVolumeClaimRetentionPolicy: {{whenDeleted: Delete, whenScaled: Retain}}
",
        SET.replace("replicas: 3", "replicas: 1")
            .replace("status: {currentRevision: web-old}\n", "")
    );
    let planned = |owners: &str| {
        let mut view = view(&set, &[pod(0, "new", "Ready")]);
        let claim = format!(
            "metadata: {{name: data-web-0, namespace: default, resourceVersion: '4', ownerReferences: [{owners}]}}"
        );
        view.claims.insert("data-web-0".to_owned(), object(&claim));
        actions(&plan(&view, noon()))
    };
    let own = "{apiVersion: apps/v1, kind: StatefulSet, name: web, uid: set-uid, controller: true}";
    let map = "{apiVersion: v1, kind: ConfigMap, name: x, uid: map-uid}";
    assert_eq!(planned(own), "");
    // Another owner is no matter, and a reference that is not a controller's is made one.
    assert_eq!(planned(&format!("{own}, {map}")), "");
    let lost = planned(&own.replace("controller: true", "controller: false"));
    assert!(
        lost.contains("\"controller\":true") && lost.contains("set-uid"),
        "{lost}"
    );
    // Another controller keeps the claim, and an earlier set of this name does.
    let other = map.replace('}', ", controller: true}");
    assert_eq!(planned(&other), "");
    let both = planned(&format!("{own}, {other}"));
    assert!(both.contains("map-uid") && !both.contains("set-uid"), "{both}");
    assert_eq!(planned(&own.replace("set-uid", "earlier-uid")), "");
}

#[test]
fn a_rollout_is_complete_when_all_pods_are_new_and_ready() {
    let status = |pods: &[String]| plan(&view(SET, pods), noon()).status.unwrap().to_string();
    expect![[r#"patch statefulsets default/web/status: {"metadata":{"resourceVersion":"7"},"status":{"availableReplicas":3,"currentReplicas":1,"observedGeneration":2,"readyReplicas":3,"replicas":3,"updateRevision":"web-new","updatedReplicas":2}}"#]].assert_eq(&status(&[
        pod(0, "old", "Ready"),
        pod(1, "new", "Ready"),
        pod(2, "new", "Ready"),
    ]));
    expect![[r#"patch statefulsets default/web/status: {"metadata":{"resourceVersion":"7"},"status":{"availableReplicas":3,"currentReplicas":3,"currentRevision":"web-new","observedGeneration":2,"readyReplicas":3,"replicas":3,"updateRevision":"web-new","updatedReplicas":3}}"#]].assert_eq(&status(&[
        pod(0, "new", "Ready"),
        pod(1, "new", "Ready"),
        pod(2, "new", "Ready"),
    ]));
}

#[test]
fn the_name_of_a_revision_is_upstreams() {
    let set: Arc<StatefulSet> = object(&SET.replace("v2", "v3"));
    let history = revisions::find(&set, Vec::new());
    let hash = crate::workloads::history::hash(
        &crate::workloads::history::data(
            &values("{metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: v3}]}}")[0],
        ),
        0,
    );
    assert_eq!(history.update.name, format!("web-{hash}"));
}
