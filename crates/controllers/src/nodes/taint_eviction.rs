//! Pods leave nodes with NoExecute taints that they do not tolerate, or no longer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::{Fields, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, EventType, Key, ObjectReference};
use parking_lot::Mutex;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Node, Pod, Toleration};
use crate::nodes::node_lifecycle::BY_NODE;
use crate::plan::{Action, Delete, Event, Patch, Plan};

pub const ROW: Row = Row {
    name: "taint-eviction",
    account: "node-controller",
    queue: "noexec_taint_pod",
    workers: 8,
    start,
};

/// Keys are pods.
struct Controller {
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    /// Since when pods wait that have to leave some day: UIDs and times by key. Taints need not say when they came.
    waiting: Mutex<HashMap<Key, (String, Moment)>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let nodes = setup.cache::<Node>(&NODE);
    let pods = setup.cache::<Pod>(&POD);
    pods.add_index(BY_NODE, |pod| vec![pod.spec.node_name.clone()]);
    let (queue, on_node) = (setup.queue(), pods.clone());
    nodes.on_change(move |old, new| {
        let strict = |node: Option<&Arc<Node>>| node.map(|node| strict_taints(node)).unwrap_or_default();
        if let Some(node) = new
            && strict(old) != strict(new)
        {
            let pods = on_node.by(BY_NODE, &node.metadata.name);
            pods.iter().for_each(|pod| queue.add(client::Object::key(&**pod)));
        }
    });
    // Each cache tells of the other; one of them must not keep the other alive.
    let (queue, known) = (setup.queue(), Arc::downgrade(&nodes));
    pods.on_change(move |old, new| {
        let Some(pod) = new.filter(|pod| !pod.spec.node_name.is_empty()) else {
            return;
        };
        let same = old.is_some_and(|old| {
            old.spec.node_name == pod.spec.node_name && old.spec.tolerations == pod.spec.tolerations
        });
        let node = known.upgrade().and_then(|nodes| nodes.get("", &pod.spec.node_name));
        let tainted = node.is_some_and(|node| !strict_taints(&node).is_empty());
        if !same && tainted {
            queue.add(client::Object::key(&**pod));
        }
    });
    Box::new(Controller {
        nodes,
        pods,
        waiting: Mutex::default(),
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(pod) = self.pods.get_key(key.as_str()) else {
            self.waiting.lock().remove(key);
            return Ok(Plan::nothing());
        };
        let node = self.nodes.get("", &pod.spec.node_name);
        let taints = node.map(|node| strict_taints(&node)).unwrap_or_default();
        let since = self.waits_since(key, &pod, attempt.now);
        let plan = plan(&pod, &taints, since, attempt.now);
        if plan.requeue.is_none() {
            self.waiting.lock().remove(key);
        }
        Ok(plan)
    }
}

impl Controller {
    fn waits_since(&self, key: &Key, pod: &Pod, now: Moment) -> Moment {
        let mut waiting = self.waiting.lock();
        let entry = waiting.entry(key.clone()).or_default();
        if entry.0 != pod.metadata.uid {
            *entry = (pod.metadata.uid.clone(), now);
        }
        entry.1
    }
}

fn strict_taints(node: &Node) -> Vec<Value> {
    let taints = node.spec.taints.iter();
    taints
        .filter(|taint| taint.text("effect") == "NoExecute")
        .cloned()
        .collect()
}

/// `since` is when the pod was first seen to wait.
fn plan(pod: &Pod, taints: &[Value], since: Moment, now: Moment) -> Plan {
    let mut plan = Plan::default();
    if pod.metadata.is_deleting() || taints.is_empty() {
        return plan;
    }
    let deadline = taints
        .iter()
        .filter_map(|taint| deadline(taint, &pod.spec.tolerations, since, now))
        .min();
    match deadline {
        None => {}
        Some(at) if at > now => plan.again_after(at.since(now)),
        Some(_) => plan.actions = evict(pod, now),
    }
    plan
}

/// When the pod must leave because of a taint; `None` when it may stay for good.
fn deadline(taint: &Value, tolerations: &[Toleration], since: Moment, now: Moment) -> Option<Moment> {
    let matching: Vec<&Toleration> = tolerations.iter().filter(|one| one.tolerates(taint)).collect();
    if matching.is_empty() {
        return Some(now);
    }
    // Of several tolerations the shortest counts; those without a time have no end.
    let seconds = matching.iter().filter_map(|one| one.toleration_seconds).min()?;
    let since = Moment::parse(taint.text("timeAdded")).unwrap_or(since);
    Some(since.plus(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
}

fn evict(pod: &Pod, now: Moment) -> Vec<Action> {
    let metadata = &pod.metadata;
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": now.to_time(),
    });
    let event = Event {
        about: ObjectReference::new(&POD, metadata),
        kind: EventType::Normal,
        reason: "TaintManagerEviction",
        message: format!("Marking for deletion Pod {}/{}", metadata.namespace, metadata.name),
    };
    vec![
        Action::Event(event),
        Action::Patch(Patch::strategic_status(
            &POD,
            metadata,
            json!({"conditions": [condition]}),
        )),
        Action::Delete(Delete::new(&POD, metadata)),
    ]
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object};

    fn check(tolerations: &str, seconds_ago: i64, expected: Expect) {
        let pod = object::<Pod>(&format!(
            "metadata: {{name: web, namespace: default, uid: u}}\nspec: {{nodeName: one, tolerations: {tolerations}}}"
        ));
        let added = Moment::from_seconds(noon().seconds() - seconds_ago);
        let taint =
            json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": added.to_time()});
        expected.assert_eq(&plan(&pod, &[taint], noon(), noon()).to_string());
    }

    #[test]
    fn the_wait_for_a_taint_without_a_time_begins_when_it_is_seen() {
        let pod = object::<Pod>(
            "{metadata: {name: web, uid: u}, spec: {tolerations: [{operator: Exists, tolerationSeconds: 60}]}}",
        );
        let taint = [json!({"key": "mine", "effect": "NoExecute"})];
        let later = |seconds| Moment::from_seconds(noon().seconds() + seconds);
        assert_eq!(plan(&pod, &taint, noon(), noon()).to_string(), "again after 60s\n");
        assert_eq!(plan(&pod, &taint, noon(), later(59)).to_string(), "again after 1s\n");
        assert_eq!(plan(&pod, &taint, noon(), later(60)).actions.len(), 3);
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_the_taint() {
        let for_five_minutes =
            "[{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]";
        check(
            for_five_minutes,
            100,
            expect![[r#"
            again after 200s
        "#]],
        );
        check(
            for_five_minutes,
            300,
            expect![[r#"
            event Normal TaintManagerEviction: Marking for deletion Pod default/web
            patch pods default/web/status: {"metadata":{"uid":"u"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Taint manager: deleting due to NoExecute taint","reason":"DeletionByTaintManager","status":"True","type":"DisruptionTarget"}]}}
            delete pods default/web
        "#]],
        );
        check(
            "[{key: other, operator: Exists}]",
            0,
            expect![[r#"
            event Normal TaintManagerEviction: Marking for deletion Pod default/web
            patch pods default/web/status: {"metadata":{"uid":"u"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Taint manager: deleting due to NoExecute taint","reason":"DeletionByTaintManager","status":"True","type":"DisruptionTarget"}]}}
            delete pods default/web
        "#]],
        );
        check("[{operator: Exists}]", 100000, expect![""]);
    }
}
