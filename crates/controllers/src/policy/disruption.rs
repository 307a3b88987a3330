//! PodDisruptionBudgets: how many of the selected pods may be evicted now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::kinds::deployment::DEPLOYMENT;
use api::kinds::pod::POD;
use api::kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET;
use api::kinds::replica_set::REPLICA_SET;
use api::kinds::replication_controller::REPLICATION_CONTROLLER;
use api::kinds::stateful_set::STATEFUL_SET;
use api::selector::Selector;
use api::{Fields, LabelSelector, ObjectMeta, Resource, Value};
use async_trait::async_trait;
use bytes::Bytes;
use client::when::Moment;
use client::{Cache, Client, EventType, Key, ObjectReference};
use http::Request;
use serde::Deserialize;
use serde_json::json;

use crate::amount::scaled;
use crate::conditions::{self, Condition};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Pod, with_metadata};
use crate::plan::{Action, Event, Plan};
use crate::resources::{Resources, no_matches};
use crate::status;

pub const ROW: Row = Row {
    name: "disruption",
    account: "disruption-controller",
    queue: "disruption",
    workers: 1,
    start,
};

/// How long an eviction that was allowed may take to show as a deletion before it is taken for failed.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Budget {
    metadata: ObjectMeta,
    spec: BudgetSpec,
    status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetSpec {
    /// Without a selector no pod is meant; an empty one means all.
    selector: Option<LabelSelector>,
    min_available: Option<Value>,
    max_unavailable: Option<Value>,
}

/// Anything that wants a number of pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Scaled {
    metadata: ObjectMeta,
    spec: ScaledSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ScaledSpec {
    replicas: Option<i64>,
}

with_metadata!(Budget, Scaled);

/// What is read of a scale subresource.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Scale {
    metadata: ObjectMeta,
    spec: ScaledSpec,
}

struct Controller {
    client: Client,
    resources: Resources,
    budgets: Arc<Cache<Budget>>,
    pods: Arc<Cache<Pod>>,
    /// The kinds that most pods are counted by. All others are asked for their scale.
    scaled: Vec<(&'static Resource, Arc<Cache<Scaled>>)>,
}

struct View {
    budget: Arc<Budget>,
    /// The pods that the budget selects.
    pods: Vec<Arc<Pod>>,
    /// How many pods their controllers want together, or why that cannot be told.
    scale: Result<i64, String>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let budgets = setup.cache::<Budget>(&POD_DISRUPTION_BUDGET);
    let pods = setup.cache::<Pod>(&POD);
    let kinds = [&DEPLOYMENT, &REPLICA_SET, &REPLICATION_CONTROLLER, &STATEFUL_SET];
    let scaled: Vec<_> = kinds
        .into_iter()
        .map(|kind| (kind, setup.cache::<Scaled>(kind)))
        .collect();
    setup.watch_own(&budgets);
    let known = budgets.clone();
    setup.watch(&pods, move |pod| {
        let budgets = known.list(&pod.metadata.namespace).into_iter();
        budgets
            .filter(|budget| budget.selects(pod))
            .map(|budget| client::Object::key(&*budget))
            .collect()
    });
    for (_, cache) in &scaled {
        let known = budgets.clone();
        setup.watch(cache, move |scaled| {
            let budgets = known.list(&scaled.metadata.namespace).into_iter();
            budgets.map(|budget| client::Object::key(&*budget)).collect()
        });
    }
    Box::new(Controller {
        client: setup.client(),
        resources: Resources::default(),
        budgets,
        pods,
        scaled,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(budget) = self.budgets.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let mut pods = self.pods.list(&budget.metadata.namespace);
        pods.retain(|pod| budget.selects(pod));
        let scale = self.scale(&pods).await;
        Ok(plan(&View { budget, pods, scale }, attempt.now))
    }
}

impl Controller {
    /// The sum over all controllers of the pods; pods without one count for nothing.
    async fn scale(&self, pods: &[Arc<Pod>]) -> Result<i64, String> {
        let mut scales: HashMap<String, i64> = HashMap::new();
        for pod in pods {
            let Some(owner) = pod.metadata.controller() else {
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let namespace = &pod.metadata.namespace;
            let (uid, replicas) = match self.cached_scale_of(namespace, owner) {
                Some(known) => known,
                None => (owner.uid.clone(), self.asked_scale_of(namespace, owner).await?),
            };
            // Also under the owner's UID, so that the next pod of it need not be looked up.
            scales.insert(uid.clone(), replicas);
            if uid != owner.uid {
                scales.insert(owner.uid.clone(), 0);
            }
        }
        Ok(scales.values().sum())
    }

    /// The scale of a built-in controller. A ReplicaSet of a Deployment counts as much as that.
    fn cached_scale_of(&self, namespace: &str, owner: &api::OwnerReference) -> Option<(String, i64)> {
        let (_, cache) = self
            .scaled
            .iter()
            .find(|(kind, _)| kind.kind == owner.kind && kind.api_version() == owner.api_version)?;
        let found = cache
            .get(namespace, &owner.name)
            .filter(|found| found.metadata.uid == owner.uid);
        let Some(found) = found else {
            // Its pods are about to go.
            return Some((owner.uid.clone(), 0));
        };
        let above = found
            .metadata
            .controller()
            .filter(|above| above.kind == DEPLOYMENT.kind);
        let of_deployment = above.and_then(|above| self.cached_scale_of(namespace, above));
        of_deployment.or_else(|| Some((owner.uid.clone(), found.spec.replicas.unwrap_or(1))))
    }

    /// The scale of any other controller, such as a custom resource.
    async fn asked_scale_of(&self, namespace: &str, owner: &api::OwnerReference) -> Result<i64, String> {
        let (kind, api_version) = (&owner.kind, &owner.api_version);
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let found = self
            .resources
            .find(&self.client, group, kind, |one| one.namespaced)
            .await;
        let resource = found?.ok_or_else(|| no_matches(kind, api_version))?;
        let scales = self.client.resource(resource).subresource("scale");
        match scales
            .in_namespace(namespace.to_owned())
            .get::<Scale>(&owner.name)
            .await
        {
            Ok(scale) if scale.metadata.uid == owner.uid => Ok(scale.spec.replicas.unwrap_or(0)),
            // Another one of the same name: the pods' own is gone, and they are about to go.
            Ok(_) => Ok(0),
            Err(error) if error.is_not_found() => match self.has_scale(resource).await? {
                true => Ok(0),
                false => Err(format!(
                    "{} does not implement the scale subresource",
                    resource.qualified()
                )),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether objects of a resource have a scale, by what the server says now: a definition may change.
    async fn has_scale(&self, resource: &Resource) -> Result<bool, String> {
        let path = match resource.group {
            "" => format!("/api/{}", resource.version),
            group => format!("/apis/{group}/{}", resource.version),
        };
        let request = Request::get(path)
            .body(Bytes::new())
            .map_err(|error| error.to_string())?;
        let answer = self.client.fetch(request).await.map_err(|error| error.to_string())?;
        let listed: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let wanted = format!("{}/scale", resource.plural);
        Ok(listed.list("resources").iter().any(|one| one.text("name") == wanted))
    }
}

impl Budget {
    fn selects(&self, pod: &Pod) -> bool {
        let selector = self.spec.selector.as_ref().map(Selector::from);
        selector.is_some_and(|selector| selector.matches(&pod.metadata.labels))
    }
}

fn plan(view: &View, now: Moment) -> Plan {
    let budget = &view.budget;
    let mut plan = Plan::default();
    if view.pods.is_empty() {
        plan.actions.push(Action::Event(Event {
            about: ObjectReference::new(&POD_DISRUPTION_BUDGET, &budget.metadata),
            kind: EventType::Normal,
            reason: "NoPods",
            message: "No matching pods found".to_owned(),
        }));
    }
    let disrupted = disrupted_pods(view, now);
    if let Some(first) = disrupted.values().filter_map(|at| Moment::parse(at)).min() {
        plan.again_after(first.plus(DELETION_TIMEOUT).since(now));
    }
    let wanted = match numbers(view) {
        Ok((expected, desired)) => next_status(view, expected, desired, &disrupted, now),
        Err(error) => failed_status(view, error, now),
    };
    plan.status = status::patch(&POD_DISRUPTION_BUDGET, &budget.metadata, &budget.status, wanted);
    if let Some(patch) = &mut plan.status
        && let Some(changed) = patch.body["status"].child_mut("disruptedPods")
    {
        // A patch adds to a map unless it says what is to go.
        let gone = budget
            .status
            .entries("disruptedPods")
            .filter(|(name, _)| !disrupted.contains_key(*name));
        gone.for_each(|(name, _)| changed.set(name, Value::Null));
    }
    plan
}

/// How many pods there should be, and how many of them must stay healthy.
fn numbers(view: &View) -> Result<(i64, i64), String> {
    let spec = &view.budget.spec;
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = view.scale.clone()?;
            Ok((expected, (expected - scaled(most, "0", expected, true)).max(0)))
        }
        (None, Some(Value::String(share))) => {
            let expected = view.scale.clone()?;
            Ok((expected, scaled(&share.as_str().into(), "0", expected, true)))
        }
        (None, least) => {
            let least = least.as_ref().and_then(Value::as_i64);
            Ok((view.pods.len() as i64, least.unwrap_or(1)))
        }
    }
}

/// Pods whose eviction was allowed but has not shown yet; the API server adds to them.
fn disrupted_pods(view: &View, now: Moment) -> BTreeMap<String, String> {
    let known = view.budget.status.entries("disruptedPods");
    let still = known.filter_map(|(name, at)| {
        let pod = view.pods.iter().find(|pod| pod.metadata.name == *name)?;
        let at = at.as_str()?;
        let expired = Moment::parse(at).is_none_or(|at| at.plus(DELETION_TIMEOUT) < now);
        (!pod.metadata.is_deleting() && !expired).then(|| (name.clone(), at.to_owned()))
    });
    still.collect()
}

fn next_status(view: &View, expected: i64, desired: i64, disrupted: &BTreeMap<String, String>, now: Moment) -> Value {
    let healthy = view
        .pods
        .iter()
        .filter(|pod| !pod.metadata.is_deleting() && !disrupted.contains_key(&pod.metadata.name) && pod.is_ready());
    let healthy = healthy.count() as i64;
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let (status, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    json!({
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "disruptedPods": disrupted,
        "observedGeneration": view.budget.metadata.generation,
        "conditions": condition(view, status, reason, String::new(), now),
    })
}

/// What cannot be counted must not be disturbed.
fn failed_status(view: &View, error: String, now: Moment) -> Value {
    json!({
        "disruptionsAllowed": 0,
        "observedGeneration": view.budget.metadata.generation,
        "conditions": condition(view, "False", "SyncFailed", error, now),
    })
}

fn condition(view: &View, status: &str, reason: &str, message: String, now: Moment) -> Vec<Value> {
    let mut all = view.budget.status.list("conditions").to_vec();
    let wanted = Condition {
        kind: "DisruptionAllowed",
        status,
        reason,
        message,
    };
    conditions::set(&mut all, &wanted, now)["observedGeneration"] = view.budget.metadata.generation.into();
    all
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object, objects};

    fn check(spec: &str, status: &str, scale: Result<i64, String>, expected: Expect) {
        let ready = "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}";
        let pods = format!(
            "
metadata: {{name: a, namespace: default}}
{ready}
---
metadata: {{name: b, namespace: default}}
{ready}
---
metadata: {{name: c, namespace: default}}
"
        );
        let view = View {
            budget: object(&format!(
                "metadata: {{name: pdb, namespace: default, resourceVersion: '4', generation: 1}}\nspec: {spec}\nstatus: {status}"
            )),
            pods: objects(&pods),
            scale,
        };
        expected.assert_eq(&plan(&view, noon()).to_string());
    }

    #[test]
    fn a_number_is_counted_among_the_pods_there_are() {
        check(
            "{minAvailable: 1}",
            "{}",
            Ok(5),
            expect![[r#"
            patch poddisruptionbudgets default/pdb/status: {"metadata":{"resourceVersion":"4"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"SufficientPods","status":"True","type":"DisruptionAllowed"}],"currentHealthy":2,"desiredHealthy":1,"disruptionsAllowed":1,"expectedPods":3,"observedGeneration":1}}
        "#]],
        );
        check(
            "{minAvailable: 2}",
            "{}",
            Ok(5),
            expect![[r#"
            patch poddisruptionbudgets default/pdb/status: {"metadata":{"resourceVersion":"4"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":2,"desiredHealthy":2,"expectedPods":3,"observedGeneration":1}}
        "#]],
        );
    }

    #[test]
    fn shares_are_of_what_the_controllers_want() {
        check(
            "{minAvailable: 30%}",
            "{}",
            Ok(5),
            expect![[r#"
            patch poddisruptionbudgets default/pdb/status: {"metadata":{"resourceVersion":"4"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":2,"desiredHealthy":2,"expectedPods":5,"observedGeneration":1}}
        "#]],
        );
        check(
            "{maxUnavailable: 3}",
            "{}",
            Ok(4),
            expect![[r#"
            patch poddisruptionbudgets default/pdb/status: {"metadata":{"resourceVersion":"4"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"SufficientPods","status":"True","type":"DisruptionAllowed"}],"currentHealthy":2,"desiredHealthy":1,"disruptionsAllowed":1,"expectedPods":4,"observedGeneration":1}}
        "#]],
        );
        check(
            "{maxUnavailable: 1}",
            "{}",
            Err("jobs.batch does not implement the scale subresource".to_owned()),
            expect![[r#"
                patch poddisruptionbudgets default/pdb/status: {"metadata":{"resourceVersion":"4"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"jobs.batch does not implement the scale subresource","observedGeneration":1,"reason":"SyncFailed","status":"False","type":"DisruptionAllowed"}],"observedGeneration":1}}
            "#]],
        );
    }

    #[test]
    fn an_eviction_that_was_allowed_counts_until_it_shows_or_is_taken_for_failed() {
        check(
            "{minAvailable: 1}",
            "{disruptedPods: {a: '2026-01-01T11:59:00Z'}}",
            Ok(3),
            expect![[r#"
                patch poddisruptionbudgets default/pdb/status: {"metadata":{"resourceVersion":"4"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":1,"desiredHealthy":1,"expectedPods":3,"observedGeneration":1}}
                again after 60s
            "#]],
        );
        check(
            "{minAvailable: 1}",
            "{disruptedPods: {a: '2026-01-01T11:50:00Z', gone: '2026-01-01T12:00:00Z'}}",
            Ok(3),
            expect![[r#"
                patch poddisruptionbudgets default/pdb/status: {"metadata":{"resourceVersion":"4"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"SufficientPods","status":"True","type":"DisruptionAllowed"}],"currentHealthy":2,"desiredHealthy":1,"disruptedPods":null,"disruptionsAllowed":1,"expectedPods":3,"observedGeneration":1}}
            "#]],
        );
    }
}
