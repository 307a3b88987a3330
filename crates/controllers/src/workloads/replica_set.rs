//! ReplicaSets and ReplicationControllers: as many pods of a template as asked for.

use std::sync::Arc;

use api::kinds::pod::POD;
use api::kinds::replica_set::REPLICA_SET;
use api::kinds::replication_controller::REPLICATION_CONTROLLER;
use api::selector::{Requirement, Selector};
use api::{Fields, Resource, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Key, ObjectReference};
use serde_json::json;

use crate::claim::{self, BY_CONTROLLER};
use crate::conditions::{self, Condition};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Pod, ReplicaSet};
use crate::plan::{Action, Announce, Create, Delete, Plan};
use crate::status;
use crate::workloads::{replicas, template};

pub const ROW: Row = Row {
    name: "replicaset",
    account: "replicaset-controller",
    queue: "replicaset",
    workers: 5,
    start: |setup| start(setup, &REPLICA_SET),
};

pub const REPLICATION_CONTROLLER_ROW: Row = Row {
    name: "replication",
    account: "replication-controller",
    queue: "replicationmanager",
    workers: 5,
    start: |setup| start(setup, &REPLICATION_CONTROLLER),
};

/// The pods that one plan creates or deletes at most; the rest follows when these are seen.
const MAX_CHANGES: i64 = 500;

struct Controller {
    resource: &'static Resource,
    sets: Arc<Cache<ReplicaSet>>,
    pods: Arc<Cache<Pod>>,
}

struct View {
    resource: &'static Resource,
    set: Arc<ReplicaSet>,
    /// Pods that the set controls, and pods of its namespace that nobody controls.
    candidates: Vec<Arc<Pod>>,
    /// Pods of this set and of those with the same controller, to spread deletions over nodes.
    related: Vec<Arc<Pod>>,
    /// Why the last creation or deletion failed.
    error: Option<String>,
}

fn start(setup: &mut Setup<'_>, resource: &'static Resource) -> Box<dyn Reconcile> {
    let sets = setup.cache::<ReplicaSet>(resource);
    let pods = setup.cache::<Pod>(&POD);
    claim::add_indexes(&sets);
    claim::add_indexes(&pods);
    setup.watch_own(&sets);
    claim::watch_dependents(setup, resource, &sets, &pods, |set, pod| {
        selector(set).matches(&pod.labels)
    });
    Box::new(Controller { resource, sets, pods })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        Ok(match self.view(key, attempt) {
            Some(view) => plan(&view, attempt.now),
            None => Plan::nothing(),
        })
    }
}

impl Controller {
    fn view(&self, key: &Key, attempt: &Attempt) -> Option<View> {
        let set = self.sets.get_key(key.as_str())?;
        let siblings = match set.metadata.controller() {
            Some(owner) => self.sets.by(BY_CONTROLLER, &owner.uid),
            None => vec![set.clone()],
        };
        let related = siblings
            .iter()
            .flat_map(|set| self.pods.by(BY_CONTROLLER, &set.metadata.uid));
        Some(View {
            resource: self.resource,
            related: related.collect(),
            candidates: claim::candidates(&self.pods, &set.metadata),
            error: attempt.error.clone(),
            set,
        })
    }
}

fn plan(view: &View, now: Moment) -> Plan {
    let set = &view.set;
    let mut plan = Plan::default();
    let selector = selector(set);
    if selector.is_empty() {
        // A selector that selects everything would take over every pod of the namespace; validation forbids it.
        return plan;
    }
    let claims = claim::claim((view.resource, &set.metadata), &selector, &POD, &view.candidates);
    plan.actions = claims.actions;
    let active: Vec<Arc<Pod>> = claims.owned.iter().filter(|pod| pod.is_active()).cloned().collect();
    // After an adoption or a release the count is known only once the cache shows it.
    let wanted = set.replicas();
    if plan.actions.is_empty() && !set.metadata.is_deleting() {
        let difference = (wanted - active.len() as i64).clamp(-MAX_CHANGES, MAX_CHANGES);
        if difference > 0 {
            plan.actions.extend((0..difference).map(|_| create(view)));
        } else if difference < 0 {
            let excess = difference.unsigned_abs() as usize;
            let victims = replicas::to_delete(&active, &view.related, excess, now);
            plan.actions.extend(victims.iter().map(|pod| delete(view, pod)));
        }
    }
    let min_ready_seconds = set.spec.min_ready_seconds;
    plan.requeue = replicas::next_available(&active, min_ready_seconds, now);
    plan.status = status::patch(
        view.resource,
        &set.metadata,
        &set.status,
        next_status(view, &claims.owned, now),
    );
    plan
}

fn selector(set: &ReplicaSet) -> Selector {
    set.spec.selector.as_ref().map(Selector::from).unwrap_or_default()
}

fn create(view: &View) -> Action {
    let set = &view.set;
    let pod = template::pod(&set.template(), view.resource, &set.metadata);
    let mut create = Create::new(&POD, &set.metadata.namespace, pod);
    create.mark = Some("replicaset-controller/pod-created");
    create.announce = Some(Announce {
        about: ObjectReference::new(view.resource, &set.metadata),
        success: ("SuccessfulCreate", "Created pod: ".to_owned()),
        failure: Some(("FailedCreate", "Error creating: ".into())),
    });
    Action::Create(create)
}

fn delete(view: &View, pod: &Pod) -> Action {
    let mut delete = Delete::new(&POD, &pod.metadata);
    delete.announce = Some(Announce {
        about: ObjectReference::new(view.resource, &view.set.metadata),
        success: ("SuccessfulDelete", "Deleted pod: ".to_owned()),
        failure: Some(("FailedDelete", "Error deleting: ".into())),
    });
    Action::Delete(delete)
}

fn next_status(view: &View, owned: &[Arc<Pod>], now: Moment) -> Value {
    let set = &view.set;
    let template = set.template();
    let labels = Selector {
        requirements: template["metadata"]
            .entries("labels")
            .map(|(key, value)| Requirement::Equals(key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
    };
    let counts = replicas::count(owned, &labels, set.spec.min_ready_seconds, now);
    let mut conditions = set.status.list("conditions").to_vec();
    match &view.error {
        Some(error) => {
            let failure = Condition {
                kind: "ReplicaFailure",
                status: "True",
                reason: if counts.replicas < set.replicas() {
                    "FailedCreate"
                } else {
                    "FailedDelete"
                },
                message: error.clone(),
            };
            if !conditions::says(&conditions, &failure) {
                conditions::set(&mut conditions, &failure, now);
            }
        }
        None => conditions::remove(&mut conditions, "ReplicaFailure"),
    }
    let mut status = json!({
        "replicas": counts.replicas,
        "fullyLabeledReplicas": counts.fully_labeled,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "observedGeneration": set.metadata.generation,
        "conditions": conditions,
    });
    if std::ptr::eq(view.resource, &REPLICA_SET) {
        status["terminatingReplicas"] = counts.terminating.into();
    }
    status
}

#[cfg(test)]
mod tests;
