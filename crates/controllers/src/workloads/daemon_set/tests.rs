use expect_test::{Expect, expect};

use super::*;
use crate::testing::{noon, object, objects};

const SET: &str = "
metadata:
  name: agent
  namespace: default
  uid: set-uid
  resourceVersion: '7'
  generation: 2
  annotations: {deprecated.daemonset.template.generation: '1'}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: v2}]}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}
";

fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    let yaml: Vec<String> = names.iter().map(|name| format!("metadata: {{name: {name}}}")).collect();
    objects(&format!("\n{}", yaml.join("\n---\n")))
}

fn revision(hash: &str, number: i64, image: &str) -> String {
    format!(
        "---
metadata:
  name: agent-{hash}
  namespace: default
  uid: {hash}
  resourceVersion: '3'
  labels: {{app: agent, controller-revision-hash: {hash}}}
  ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: set-uid, controller: true}}]
revision: {number}
data: {{spec: {{template: {{$patch: replace, metadata: {{labels: {{app: agent}}}}, spec: {{containers: [{{name: agent, image: {image}}}]}}}}}}}}
"
    )
}

fn pod(node: &str, hash: &str, ready: bool) -> String {
    format!(
        "---
metadata:
  name: agent-{node}-{hash}
  namespace: default
  uid: {node}-{hash}
  resourceVersion: '5'
  labels: {{app: agent, controller-revision-hash: {hash}}}
  ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: set-uid, controller: true}}]
spec: {{nodeName: {node}}}
status: {{phase: Running, conditions: [{{type: Ready, status: '{}', lastTransitionTime: '2026-01-01T11:59:50Z'}}]}}
",
        if ready { "True" } else { "False" }
    )
}

/// The plan without its status, short enough to read.
fn check(set: &str, names: &[&str], pods: &[String], revisions: &[String], expected: Expect) {
    let view = View {
        set: object(set),
        candidates: objects(&format!("\n{}", pods.concat())),
        revisions: objects(&format!("\n{}", revisions.concat())),
        nodes: nodes(names),
        patience: HashMap::new(),
    };
    let plan = plan(&view, noon());
    let lines = plan.actions.iter().map(|action| match action {
        Action::Create(create) => {
            let object = &create.object;
            let terms = &object["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            let node = &terms["nodeSelectorTerms"][0]["matchFields"][0]["values"];
            format!(
                "create {} {} {node}\n",
                create.resource.plural, object["metadata"]["labels"]
            )
        }
        other => format!("{other}\n"),
    });
    expected.assert_eq(&lines.collect::<String>());
}

fn both() -> [String; 2] {
    [revision("old", 1, "v1"), revision("new", 2, "v2")]
}

#[test]
fn every_node_gets_a_pod_that_only_it_can_run() {
    check(
        SET,
        &["a", "b"],
        &[],
        &[],
        expect![[r#"
        create controllerrevisions {"app":"agent","controller-revision-hash":"7bf9f8b549"} null
        create pods {"app":"agent","controller-revision-hash":"7bf9f8b549","pod-template-generation":"1"} ["a"]
        create pods {"app":"agent","controller-revision-hash":"7bf9f8b549","pod-template-generation":"1"} ["b"]
    "#]],
    );
}

#[test]
fn a_rollout_keeps_to_its_bounds_and_replaces_useless_pods_first() {
    check(
        SET,
        &["a", "b"],
        &[pod("a", "old", true), pod("b", "old", true)],
        &both(),
        expect![[r#"
            delete pods default/agent-a-old
        "#]],
    );
    check(
        SET,
        &["a", "b"],
        &[pod("a", "old", true), pod("b", "old", false)],
        &both(),
        expect![[r#"
            delete pods default/agent-b-old
        "#]],
    );
    check(
        SET,
        &["a", "b"],
        &[pod("a", "old", true), pod("b", "new", false)],
        &both(),
        expect![[r#""#]],
    );
}

#[test]
fn with_a_surge_the_new_pod_comes_before_the_old_one_goes() {
    let set = SET.replace("maxUnavailable: 1, maxSurge: 0", "maxUnavailable: 0, maxSurge: 1");
    check(
        &set,
        &["a", "b"],
        &[pod("a", "old", true), pod("b", "old", true)],
        &both(),
        expect![[r#"
            create pods {"app":"agent","controller-revision-hash":"new","pod-template-generation":"1"} ["a"]
        "#]],
    );
    let surging = [pod("a", "old", true), pod("a", "new", false), pod("b", "old", true)];
    check(&set, &["a", "b"], &surging, &both(), expect![[r#""#]]);
    let handed_over = [pod("a", "old", true), pod("a", "new", true), pod("b", "old", true)];
    check(
        &set,
        &["a", "b"],
        &handed_over,
        &both(),
        expect![[r#"
        delete pods default/agent-a-old
    "#]],
    );
}

#[test]
fn on_delete_leaves_old_pods_alone() {
    let set = SET.replace(
        "type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}",
        "type: OnDelete",
    );
    check(&set, &["a"], &[pod("a", "old", true)], &both(), expect![[r#""#]]);
}

#[test]
fn a_template_that_was_there_before_becomes_the_newest_again() {
    let revisions = [revision("new", 1, "v2"), revision("old", 2, "v1")];
    check(
        SET,
        &["a"],
        &[pod("a", "new", true)],
        &revisions,
        expect![[r#"
        patch controllerrevisions default/agent-new: {"metadata":{"resourceVersion":"3"},"revision":3}
    "#]],
    );
}

#[test]
fn of_revisions_with_the_same_content_the_newest_stays_and_gets_the_pods() {
    let revisions = [revision("new", 1, "v2"), revision("same", 2, "v2")];
    check(
        SET,
        &["a"],
        &[pod("a", "new", true)],
        &revisions,
        expect![[r#"
        patch pods default/agent-a-new: {"metadata":{"labels":{"controller-revision-hash":"same"}}}
        delete controllerrevisions default/agent-new
        delete pods default/agent-a-new
    "#]],
    );
}

#[test]
fn pods_leave_nodes_that_no_longer_fit_and_finished_ones_are_replaced() {
    let set = SET.replace("spec: {containers", "spec: {nodeSelector: {kind: edge}, containers");
    let revisions = [revision("new", 1, "v2")];
    check(
        &set,
        &["a"],
        &[pod("a", "new", true)],
        &revisions,
        expect![[r#"
        create controllerrevisions {"app":"agent","controller-revision-hash":"c868dd8b5"} null
        delete pods default/agent-a-new
    "#]],
    );
    let failed = pod("a", "new", false).replace("phase: Running", "phase: Failed");
    check(
        SET,
        &["a"],
        &[failed],
        &revisions,
        expect![[r#"
        event Warning FailedDaemonPod: Found failed daemon pod default/agent-a-new on node a, will try to kill it
        delete pods default/agent-a-new
    "#]],
    );
}

#[test]
fn the_status_counts_nodes() {
    let view = View {
        set: object(SET),
        candidates: objects(&format!("\n{}{}", pod("a", "new", true), pod("b", "old", true))),
        revisions: objects(&format!("\n{}", both().concat())),
        nodes: nodes(&["a", "b", "c"]),
        patience: HashMap::new(),
    };
    let status = plan(&view, noon()).status.unwrap();
    expect![[r#"patch daemonsets default/agent/status: {"metadata":{"resourceVersion":"7"},"status":{"currentNumberScheduled":2,"desiredNumberScheduled":3,"numberAvailable":2,"numberReady":2,"numberUnavailable":1,"observedGeneration":2,"updatedNumberScheduled":1}}"#]].assert_eq(&status.to_string());
}
