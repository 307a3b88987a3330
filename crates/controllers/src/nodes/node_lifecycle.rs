//! Nodes that stop reporting, and the taints by which the state of a node keeps pods away.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::lease::LEASE;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::{Fields, ObjectMeta, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, EventType, Key, ObjectReference, Selection};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use crate::conditions::{self, Condition};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Node, Pod, created, with_metadata};
use crate::plan::{Action, Event, Patch, Plan};
use crate::status;

pub const ROW: Row = Row {
    name: "node-lifecycle",
    account: "node-controller",
    queue: "node_lifecycle_controller",
    workers: 4,
    start,
};

/// A node that has neither renewed its lease nor reported for this long is taken to be out of reach, as upstream does.
const GRACE: Duration = Duration::from_secs(50);
/// A new node has this long for its first report.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Files pods under their node.
pub const BY_NODE: &str = "node";

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Which condition, with which status, puts which taint on the node.
const TAINTS_BY_CONDITION: &[(&str, &str, &str)] = &[
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// The conditions that only the kubelet knows.
const REPORTED: &[&str] = &["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Keys are nodes.
struct Controller {
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    /// When each node was last heard of, by our clock: that of the node may be wrong.
    heard: Arc<Mutex<HashMap<String, Moment>>>,
}

struct View {
    node: Arc<Node>,
    pods: Vec<Arc<Pod>>,
    heard: Option<Moment>,
    /// Whether any node at all is ready. When none is, the fault is more likely ours, and nobody is evicted.
    any_ready: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: ObjectMeta,
    spec: LeaseSpec,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    renew_time: Option<String>,
}

with_metadata!(Lease);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let nodes = setup.cache::<Node>(&NODE);
    let pods = setup.cache::<Pod>(&POD);
    let in_namespace = Selection {
        namespace: LEASE_NAMESPACE.to_owned(),
        ..Selection::default()
    };
    let leases = setup.selected::<Lease>(&LEASE, in_namespace);
    pods.add_index(BY_NODE, |pod| vec![pod.spec.node_name.clone()]);
    let heard: Arc<Mutex<HashMap<String, Moment>>> = Arc::default();
    let (sink, queue) = (heard.clone(), setup.queue());
    nodes.on_change(move |old, new| match (old, new) {
        (Some(old), None) => {
            sink.lock().remove(&old.metadata.name);
        }
        (old, Some(new)) => {
            // Our own writes to spec and metadata are no sign of life.
            if old.is_none_or(|old| is_report(old, new)) {
                sink.lock().insert(new.metadata.name.clone(), Moment::now());
            }
            let same = |old: &Arc<Node>| old.spec == new.spec && old.status == new.status;
            if old.is_none_or(|old| !same(old)) {
                queue.add(Key::new("", &new.metadata.name));
            }
        }
        (None, None) => {}
    });
    let sink = heard.clone();
    leases.on_change(move |old, new| {
        if let Some(new) = new
            && old.is_none_or(|old| old.spec != new.spec)
        {
            sink.lock().insert(new.metadata.name.clone(), Moment::now());
        }
    });
    Box::new(Controller { nodes, pods, heard })
}

/// A kubelet that reports moves the heartbeat of its conditions, and leaves none unknown.
fn is_report(old: &Node, new: &Node) -> bool {
    let beats = |node: &Node| -> Vec<String> {
        let conditions = node.status.conditions.iter();
        conditions.map(|one| one.text("lastHeartbeatTime").to_owned()).collect()
    };
    let ready =
        |node: &Node| conditions::find(&node.status.conditions, "Ready").map(|one| one.text("status").to_owned());
    beats(old) != beats(new) || (ready(old) != ready(new) && ready(new).as_deref() != Some("Unknown"))
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(node) = self.nodes.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let is_ready = |node: &Arc<Node>| ready_status(&node.status.conditions) == "True";
        let view = View {
            pods: self.pods.by(BY_NODE, key.name()),
            heard: self.heard.lock().get(key.name()).copied(),
            any_ready: self.nodes.all().iter().any(is_ready),
            node,
        };
        Ok(plan(&view, attempt.now))
    }
}

fn plan(view: &View, now: Moment) -> Plan {
    let node = &view.node;
    let mut plan = Plan::default();
    let mut conditions = node.status.conditions.clone();
    let heard = view.heard.unwrap_or_else(|| created(&node.metadata));
    let never = conditions::find(&conditions, "Ready").is_none();
    let grace = if never { STARTUP_GRACE } else { GRACE };
    let silence = now.since(heard);
    if silence >= grace {
        mark_unknown(&mut conditions, never, now);
        // The heartbeats of the conditions say when the node was last heard of.
        let wanted = json!({"conditions": conditions});
        let current = json!({"conditions": node.status.conditions});
        plan.status = status::patch(&NODE, &node.metadata, &current, wanted);
    } else {
        plan.again_after(grace - silence);
    }
    let ready = ready_status(&conditions);
    if plan.status.is_some() && ready_status(&node.status.conditions) == "True" {
        plan.actions.push(Action::Event(lost_event(view)));
    }
    plan.actions.extend(taint_patch(view, &conditions, now));
    if ready != "True" && !never {
        let ready_pods = view.pods.iter().filter(|pod| pod.is_ready());
        plan.actions.extend(ready_pods.map(|pod| mark_not_ready(pod, now)));
    }
    plan
}

fn ready_status(conditions: &[Value]) -> String {
    conditions::find(conditions, "Ready").map_or(String::new(), |ready| ready.text("status").to_owned())
}

fn mark_unknown(conditions: &mut Vec<Value>, never: bool, now: Moment) {
    let (reason, message) = if never {
        ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
    } else {
        ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    };
    for kind in REPORTED {
        let known = conditions::find(conditions, kind).map(|one| one.text("status").to_owned());
        if known.as_deref() == Some("Unknown") {
            continue;
        }
        let wanted = Condition {
            kind,
            status: "Unknown",
            reason,
            message: message.to_owned(),
        };
        let condition = conditions::set(conditions, &wanted, now);
        if !condition.has("lastHeartbeatTime") {
            condition["lastHeartbeatTime"] = now.to_time().into();
        }
    }
}

fn lost_event(view: &View) -> Event {
    let name = &view.node.metadata.name;
    Event {
        about: ObjectReference::new(&NODE, &view.node.metadata),
        kind: EventType::Normal,
        reason: "NodeNotReady",
        message: format!("Node {name} status is now: NodeNotReady"),
    }
}

/// The taints that the conditions call for, beside those of others.
fn taint_patch(view: &View, conditions: &[Value], now: Moment) -> Option<Action> {
    let node = &view.node;
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, status, key) in TAINTS_BY_CONDITION {
        if conditions::find(conditions, kind).is_some_and(|one| one.text("status") == *status) {
            wanted.push((key, "NoSchedule"));
        }
    }
    // A node that has not reported yet keeps what it was created with.
    let reported = conditions::find(conditions, "Ready").is_some();
    if !reported && has_taint(node, NOT_READY, "NoSchedule") {
        wanted.push((NOT_READY, "NoSchedule"));
    }
    if node.spec.unschedulable {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    match ready_status(conditions).as_str() {
        "False" => wanted.push((NOT_READY, "NoExecute")),
        "Unknown" if view.any_ready || has_taint(node, UNREACHABLE, "NoExecute") => {
            wanted.push((UNREACHABLE, "NoExecute"));
        }
        _ => {}
    }
    let is_ours = |taint: &Value| {
        let (key, effect) = (taint.text("key"), taint.text("effect"));
        let by_condition = TAINTS_BY_CONDITION.iter().any(|(_, _, ours)| *ours == key) || key == UNSCHEDULABLE;
        by_condition && (effect == "NoSchedule" || (effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&key)))
    };
    let is_wanted = |taint: &Value| wanted.contains(&(taint.text("key"), taint.text("effect")));
    let kept = node
        .spec
        .taints
        .iter()
        .filter(|taint| !is_ours(taint) || is_wanted(taint));
    let mut taints: Vec<Value> = kept.cloned().collect();
    for (key, effect) in wanted.iter().filter(|(key, effect)| !has_taint(node, key, effect)) {
        taints.push(json!({"key": key, "effect": effect, "timeAdded": now.to_time()}));
    }
    if taints == node.spec.taints {
        return None;
    }
    let taints = if taints.is_empty() { Value::Null } else { taints.into() };
    let patch = Patch::new(&NODE, &node.metadata, json!({"spec": {"taints": taints}}));
    Some(Action::Patch(patch.at_revision(&node.metadata)))
}

fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    let mut taints = node.spec.taints.iter();
    taints.any(|taint| taint.text("key") == key && taint.text("effect") == effect)
}

/// Traffic must not go to a pod that nobody can vouch for.
fn mark_not_ready(pod: &Pod, now: Moment) -> Action {
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "NodeNotReady", "message": "Node is not ready",
        "lastTransitionTime": now.to_time(),
    });
    let status = json!({"conditions": [condition]});
    Action::Patch(Patch::strategic_status(&POD, &pod.metadata, status))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object, objects};

    const NEW: &str = "
metadata: {name: one, resourceVersion: '3', creationTimestamp: '2026-01-01T11:59:30Z'}
spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}, {key: mine, effect: NoSchedule, value: kept}]}
";

    fn check(node: &str, pods: &str, heard_seconds_ago: u64, any_ready: bool, expected: Expect) {
        let heard = Moment::from_seconds(noon().seconds() - heard_seconds_ago as i64);
        let view = View {
            node: object(node),
            pods: objects(pods),
            heard: Some(heard),
            any_ready,
        };
        expected.assert_eq(&plan(&view, noon()).to_string());
    }

    fn reporting(ready: &str) -> String {
        format!("{NEW}status: {{conditions: [{{type: Ready, status: '{ready}', lastHeartbeatTime: h}}]}}")
    }

    #[test]
    fn a_new_node_keeps_its_taint_until_it_is_ready() {
        check(
            NEW,
            "",
            1,
            false,
            expect![[r#"
            again after 59s
        "#]],
        );
        check(
            &reporting("True"),
            "",
            1,
            true,
            expect![[r#"
            patch nodes one: {"metadata":{"resourceVersion":"3"},"spec":{"taints":[{"effect":"NoSchedule","key":"mine","value":"kept"}]}}
            again after 49s
        "#]],
        );
    }

    #[test]
    fn a_node_that_is_not_ready_is_tainted_and_its_pods_get_no_traffic() {
        let pod =
            "metadata: {name: web, namespace: default, uid: u}\nstatus: {conditions: [{type: Ready, status: 'True'}]}";
        check(
            &reporting("False"),
            pod,
            1,
            true,
            expect![[r#"
            patch nodes one: {"metadata":{"resourceVersion":"3"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready"},{"effect":"NoSchedule","key":"mine","value":"kept"},{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","timeAdded":"2026-01-01T12:00:00Z"}]}}
            patch pods default/web/status: {"metadata":{"uid":"u"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Node is not ready","reason":"NodeNotReady","status":"False","type":"Ready"}]}}
            again after 49s
        "#]],
        );
    }

    #[test]
    fn a_silent_node_becomes_unknown() {
        check(
            &reporting("True"),
            "",
            50,
            true,
            expect![[r#"
            event Normal NodeNotReady: Node one status is now: NodeNotReady
            patch nodes one: {"metadata":{"resourceVersion":"3"},"spec":{"taints":[{"effect":"NoSchedule","key":"mine","value":"kept"},{"effect":"NoSchedule","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-01T12:00:00Z"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","timeAdded":"2026-01-01T12:00:00Z"}]}}
            patch nodes one/status: {"metadata":{"resourceVersion":"3"},"status":{"conditions":[{"lastHeartbeatTime":"h","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"Ready"},{"lastHeartbeatTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"MemoryPressure"},{"lastHeartbeatTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"DiskPressure"},{"lastHeartbeatTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"PIDPressure"}]}}
        "#]],
        );
    }

    #[test]
    fn when_all_nodes_are_silent_nobody_is_evicted() {
        let plan = {
            let view = View {
                node: object(&reporting("Unknown")),
                pods: Vec::new(),
                heard: Some(Moment::from_seconds(0)),
                any_ready: false,
            };
            plan(&view, noon()).to_string()
        };
        assert!(plan.contains("unreachable") && !plan.contains("NoExecute"), "{plan}");
    }

    #[test]
    fn a_cordon_is_a_taint_too() {
        let node = reporting("True")
            .replace("spec: {", "spec: {unschedulable: true, ")
            .replace("{key: node.kubernetes.io/not-ready, effect: NoSchedule}, ", "");
        check(
            &node,
            "",
            1,
            true,
            expect![[r#"
            patch nodes one: {"metadata":{"resourceVersion":"3"},"spec":{"taints":[{"effect":"NoSchedule","key":"mine","value":"kept"},{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","timeAdded":"2026-01-01T12:00:00Z"}]}}
            again after 49s
        "#]],
        );
    }
}
