//! Removes pods that nobody else will: those of nodes that are gone or out of service, those deleted before they were
//! placed, and the oldest of too many that have ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::{Fields, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Client, Key};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Node, Pod, created};
use crate::nodes::node_lifecycle::BY_NODE;
use crate::plan::{Action, Delete, Patch, Plan};

pub const ROW: Row = Row {
    name: "pod-garbage-collector",
    account: "pod-garbage-collector",
    queue: "orphaned_pods_nodes",
    workers: 5,
    start,
};

/// The pods that may stay after they have ended; upstream's default.
const MAX_TERMINATED: usize = 12_500;
/// How often those are counted.
const CHECK: Duration = Duration::from_secs(20);
/// How long a node must be missing before its pods go: it may only be registering anew.
const QUARANTINE: Duration = Duration::from_secs(40);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Keys are pods, and one that stands for all that have ended.
struct Controller {
    client: Client,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    /// Since when nodes that have pods are missing.
    missing: Mutex<HashMap<String, Moment>>,
}

fn all_terminated() -> Key {
    Key::new("", "terminated")
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let nodes = setup.cache::<Node>(&NODE);
    let pods = setup.cache::<Pod>(&POD);
    pods.add_index(BY_NODE, |pod| vec![pod.spec.node_name.clone()]);
    let (queue, on_node) = (setup.queue(), pods.clone());
    nodes.on_change(move |old, new| {
        let stopped = |node: Option<&Arc<Node>>| node.is_none_or(|node| is_out_of_service(node));
        if let Some(node) = old
            && stopped(new)
        {
            let pods = on_node.by(BY_NODE, &node.metadata.name);
            pods.iter().for_each(|pod| queue.add(client::Object::key(&**pod)));
        }
    });
    let queue = setup.queue();
    pods.on_change(move |old, new| {
        let place = |pod: Option<&Arc<Pod>>| pod.map(|pod| (pod.spec.node_name.clone(), pod.metadata.is_deleting()));
        if let Some(pod) = new
            && place(old) != place(new)
        {
            queue.add(client::Object::key(&**pod));
        }
    });
    setup.queue().add(all_terminated());
    Box::new(Controller {
        client: setup.client(),
        nodes,
        pods,
        missing: Mutex::default(),
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        if *key == all_terminated() {
            return Ok(trim(&self.pods.all(), MAX_TERMINATED, attempt.now));
        }
        let Some(pod) = self.pods.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let node = self.nodes.get("", &pod.spec.node_name);
        if node.is_some() || pod.spec.node_name.is_empty() {
            self.missing.lock().remove(&pod.spec.node_name);
            return Ok(plan(&pod, node.as_deref(), attempt.now));
        }
        let since = *self
            .missing
            .lock()
            .entry(pod.spec.node_name.clone())
            .or_insert(attempt.now);
        let missing_for = attempt.now.since(since);
        if missing_for < QUARANTINE {
            let mut plan = Plan::default();
            plan.again_after(QUARANTINE - missing_for);
            return Ok(plan);
        }
        match self.client.resource(&NODE).get::<IgnoredAny>(&pod.spec.node_name).await {
            Err(error) if error.is_not_found() => Ok(orphaned(&pod, attempt.now)),
            // The cache will show it.
            Ok(_) => Ok(Plan::nothing()),
            Err(error) => Err(error),
        }
    }
}

/// A pod whose node is there, or that has none.
fn plan(pod: &Pod, node: Option<&Node>, now: Moment) -> Plan {
    let mut plan = Plan::default();
    if !pod.metadata.is_deleting() {
        return plan;
    }
    match node {
        None if pod.spec.node_name.is_empty() => plan.actions = remove(pod, None, now),
        Some(node) if is_out_of_service(node) => {
            plan.actions = remove(pod, Some("PodGC: node is out of service"), now);
        }
        _ => {}
    }
    plan
}

fn orphaned(pod: &Pod, now: Moment) -> Plan {
    Plan {
        actions: remove(pod, Some("PodGC: node no longer exists"), now),
        ..Plan::default()
    }
}

/// The oldest of the pods that have ended, as many as there are too many.
fn trim(pods: &[Arc<Pod>], most: usize, now: Moment) -> Plan {
    let mut ended: Vec<&Arc<Pod>> = pods
        .iter()
        .filter(|pod| pod.is_finished() && !pod.metadata.is_deleting())
        .collect();
    let excess = ended.len().saturating_sub(most);
    let mut plan = Plan::default();
    if excess > 0 {
        ended.sort_by_key(|pod| (created(&pod.metadata), pod.metadata.name.clone()));
        plan.actions = ended[..excess].iter().flat_map(|pod| remove(pod, None, now)).collect();
    }
    plan.again_after(CHECK);
    plan
}

/// The node must be not ready and marked by an administrator who has seen that it is off.
fn is_out_of_service(node: &Node) -> bool {
    let ready = node
        .status
        .conditions
        .iter()
        .find(|condition| condition.text("type") == "Ready");
    let is_ready = ready.is_some_and(|condition| condition.text("status") == "True");
    !is_ready && node.spec.taints.iter().any(|taint| taint.text("key") == OUT_OF_SERVICE)
}

/// Nobody else will ever say how the pod ended, so that it counts as failed.
fn remove(pod: &Pod, why: Option<&str>, now: Moment) -> Vec<Action> {
    let mut actions = Vec::new();
    if !pod.is_finished() {
        let conditions: Vec<Value> = why
            .iter()
            .map(|why| {
                json!({
                    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": why,
                    "lastTransitionTime": now.to_time(),
                })
            })
            .collect();
        let mut status = json!({"phase": "Failed"});
        if !conditions.is_empty() {
            status["conditions"] = conditions.into();
        }
        actions.push(Action::Patch(Patch::strategic_status(&POD, &pod.metadata, status)));
    }
    let mut delete = Delete::new(&POD, &pod.metadata);
    delete.grace_period_seconds = Some(0);
    actions.push(Action::Delete(delete));
    actions
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::{noon, object, objects};

    const DELETED: &str =
        "metadata: {name: web, namespace: default, uid: u, deletionTimestamp: '2026-01-01T11:00:00Z'}";

    #[test]
    fn a_pod_that_was_never_placed_needs_no_kubelet_to_go() {
        expect![[r#"
            patch pods default/web/status: {"metadata":{"uid":"u"},"status":{"phase":"Failed"}}
            delete pods default/web
        "#]]
        .assert_eq(&plan(&object(DELETED), None, noon()).to_string());
        let waiting = object("metadata: {name: web, namespace: default, uid: u}");
        assert_eq!(plan(&waiting, None, noon()).to_string(), "");
    }

    #[test]
    fn pods_of_lost_nodes_fail_and_go() {
        let pod = object("metadata: {name: web, namespace: default, uid: u}\nspec: {nodeName: gone}");
        expect![[r#"
            patch pods default/web/status: {"metadata":{"uid":"u"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"PodGC: node no longer exists","reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"phase":"Failed"}}
            delete pods default/web
        "#]]
        .assert_eq(&orphaned(&pod, noon()).to_string());
        let node = object::<Node>("metadata: {name: one}\nspec: {taints: [{key: node.kubernetes.io/out-of-service}]}");
        let pod = object::<Pod>(&format!(
            "{DELETED}\nspec: {{nodeName: one}}\nstatus: {{phase: Running}}"
        ));
        assert!(
            plan(&pod, Some(&node), noon())
                .to_string()
                .contains("node is out of service")
        );
    }

    #[test]
    fn of_too_many_ended_pods_the_oldest_go() {
        let pods = objects(
            "
metadata: {name: new, namespace: default, creationTimestamp: '2026-01-01T11:00:00Z'}
status: {phase: Failed}
---
metadata: {name: old, namespace: default, creationTimestamp: '2026-01-01T10:00:00Z'}
status: {phase: Succeeded}
---
metadata: {name: running, namespace: default, creationTimestamp: '2026-01-01T09:00:00Z'}
status: {phase: Running}",
        );
        expect![[r#"
            delete pods default/old
            again after 20s
        "#]]
        .assert_eq(&trim(&pods, 1, noon()).to_string());
    }
}
