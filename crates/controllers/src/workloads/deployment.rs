//! Deployments: pods of one template, replaced step by step when the template changes.
//!
//! [`plan`] reads like the life of a rollout: claim the ReplicaSets, find the one of the current template, scale
//! (`scaling`), replace (`rollout`), tidy up (`history`), tell (`progress`).

mod history;
mod model;
mod progress;
mod rollout;
mod scaling;
mod sets;

use std::collections::HashMap;
use std::sync::Arc;

use api::kinds::deployment::DEPLOYMENT;
use api::kinds::pod::POD;
use api::kinds::replica_set::REPLICA_SET;
use api::{Fields, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, EventType, Key, ObjectReference};
use serde_json::json;

use crate::claim::{self, BY_CONTROLLER};
use crate::driver::{Attempt, Reconcile, Row, Setup, controller_key};
use crate::model::{Pod, ReplicaSet};
use crate::plan::{Action, Event, Patch, Plan};
use crate::status;
use model::Deployment;
use sets::Sets;

pub const ROW: Row = Row {
    name: "deployment",
    account: "deployment-controller",
    queue: "deployment",
    workers: 5,
    start,
};

/// The annotation that numbers the templates of a Deployment; `kubectl rollout history` reads it.
const REVISION: &str = "deployment.kubernetes.io/revision";

struct Controller {
    deployments: Arc<Cache<Deployment>>,
    sets: Arc<Cache<ReplicaSet>>,
    pods: Arc<Cache<Pod>>,
}

struct View {
    deployment: Arc<Deployment>,
    /// ReplicaSets that the Deployment controls, and those of its namespace that nobody controls.
    candidates: Vec<Arc<ReplicaSet>>,
    /// The names of all ReplicaSets of the namespace that could clash with a new one.
    names: Vec<String>,
    /// How many unfinished pods each ReplicaSet has, by the set's UID.
    unfinished: HashMap<String, usize>,
}

/// A plan in the making.
struct Planner<'a> {
    deployment: &'a Deployment,
    view: &'a View,
    now: Moment,
    sets: Sets,
    /// The conditions that the status will have.
    conditions: Vec<Value>,
    collisions: i64,
    actions: Vec<Action>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let deployments = setup.cache::<Deployment>(&DEPLOYMENT);
    let sets = setup.cache::<ReplicaSet>(&REPLICA_SET);
    let pods = setup.cache::<Pod>(&POD);
    claim::add_indexes(&sets);
    claim::add_indexes(&pods);
    setup.watch_own(&deployments);
    claim::watch_dependents(setup, &DEPLOYMENT, &deployments, &sets, |deployment, set| {
        deployment.selector().matches(&set.labels)
    });
    // A Recreate waits for the last old pod; the ReplicaSet's status tells of all other changes.
    let (queue, known) = (setup.queue(), sets.clone());
    pods.on_change(move |old, new| {
        let Some(pod) = old.filter(|_| new.is_none_or(|pod| pod.is_finished())) else {
            return;
        };
        let set = pod.metadata.controller().filter(|owner| owner.kind == REPLICA_SET.kind);
        let set = set.and_then(|owner| known.get(&pod.metadata.namespace, &owner.name));
        let keys = set.map(|set| controller_key(&set.metadata, DEPLOYMENT.kind));
        keys.into_iter().flatten().for_each(|key| queue.add(key));
    });
    Box::new(Controller {
        deployments,
        sets,
        pods,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        Ok(match self.view(key) {
            Some(view) => plan(&view, attempt.now),
            None => Plan::nothing(),
        })
    }
}

impl Controller {
    fn view(&self, key: &Key) -> Option<View> {
        let deployment = self.deployments.get_key(key.as_str())?;
        let metadata = &deployment.metadata;
        let candidates = claim::candidates(&self.sets, metadata);
        let prefix = format!("{}-", metadata.name);
        let all = self.sets.list(&metadata.namespace);
        let names = all.iter().map(|set| set.metadata.name.clone());
        let unfinished = candidates.iter().map(|set| {
            let pods = self.pods.by(BY_CONTROLLER, &set.metadata.uid);
            let unfinished = pods.iter().filter(|pod| !pod.is_finished()).count();
            (set.metadata.uid.clone(), unfinished)
        });
        Some(View {
            names: names.filter(|name| name.starts_with(&prefix)).collect(),
            unfinished: unfinished.collect(),
            candidates,
            deployment,
        })
    }
}

fn plan(view: &View, now: Moment) -> Plan {
    let deployment = &*view.deployment;
    let selector = deployment.selector();
    if selector.is_empty() {
        return selects_everything(deployment);
    }
    let owner = (&DEPLOYMENT, &deployment.metadata);
    let claims = claim::claim(owner, &selector, &REPLICA_SET, &view.candidates);
    if !claims.actions.is_empty() {
        // What is ours is known only once the cache shows it.
        return Plan {
            actions: claims.actions,
            ..Plan::default()
        };
    }
    let planner = Planner {
        deployment,
        view,
        now,
        sets: Sets::new(deployment, claims.owned),
        conditions: deployment.status.list("conditions").to_vec(),
        collisions: deployment.status.number("collisionCount"),
        actions: Vec::new(),
    };
    planner.plan()
}

impl Planner<'_> {
    fn plan(mut self) -> Plan {
        if self.deployment.metadata.is_deleting() {
            let status = self.status();
            return self.finish(status, None);
        }
        self.note_pause();
        if self.deployment.spec.paused || self.is_scaling() {
            self.adopt_revision();
            self.scale();
            if self.deployment.spec.paused {
                self.clean_up();
            }
            let status = self.status();
            return self.finish(status, None);
        }
        if self.deployment.is_rolling_update() {
            self.roll();
        } else {
            self.recreate();
        }
        let status = self.progressed_status();
        let again = self.deadline_left(&status);
        self.finish(status, again)
    }

    /// Turns what was decided into actions.
    fn finish(mut self, status: Value, again: Option<std::time::Duration>) -> Plan {
        let deployment = self.deployment;
        self.actions.extend(self.sets.actions(deployment));
        self.actions.extend(self.revision_patch());
        Plan {
            status: status::patch(&DEPLOYMENT, &deployment.metadata, &deployment.status, status),
            actions: self.actions,
            requeue: again,
        }
    }

    /// The Deployment carries the revision of its current ReplicaSet. It is written through the status, which webhooks
    /// about Deployments are not asked about.
    fn revision_patch(&self) -> Option<Action> {
        let revision = self.sets.current()?.annotation(REVISION)?;
        let metadata = &self.deployment.metadata;
        if metadata.annotations.get(REVISION) == Some(&revision) {
            return None;
        }
        let body = json!({"metadata": {"annotations": {REVISION: revision}}});
        let mut patch = Patch::new(&DEPLOYMENT, metadata, body)
            .at_revision(metadata)
            .by_update();
        patch.subresource = "status";
        Some(Action::Patch(patch))
    }
}

/// Validation forbids an empty selector, which would take over every pod of the namespace.
fn selects_everything(deployment: &Deployment) -> Plan {
    let metadata = &deployment.metadata;
    let warning = Event {
        about: ObjectReference::new(&DEPLOYMENT, metadata),
        kind: EventType::Warning,
        reason: "SelectingAll",
        message: "This deployment is selecting all pods. A non-empty selector is required.".to_owned(),
    };
    let observed = json!({"observedGeneration": metadata.generation});
    let status = status::patch(&DEPLOYMENT, metadata, &deployment.status, observed);
    Plan {
        actions: status.iter().map(|_| Action::Event(warning.clone())).collect(),
        status,
        requeue: None,
    }
}

#[cfg(test)]
mod tests;
