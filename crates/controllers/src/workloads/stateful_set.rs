//! StatefulSets: pods with names and storage of their own, brought up, replaced and taken down in order.
//!
//! [`plan`] finds the revisions of the template (`revisions`), then walks the set as upstream does: first every wanted
//! pod must be there and available, then those beyond go, then old templates are replaced (`order`); `pods` and
//! `claims` make what is missing.

mod claims;
mod model;
mod order;
mod pods;
mod revisions;

use std::collections::HashMap;
use std::sync::Arc;

use api::Value;
use api::kinds::controller_revision::CONTROLLER_REVISION;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::stateful_set::STATEFUL_SET;
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Key};
use serde_json::json;

use crate::claim;
use crate::driver::{Attempt, Reconcile, Row, Setup, controller_key};
use crate::model::{Metadata, Pod};
use crate::plan::Plan;
use crate::status;
use crate::workloads::history::{REVISION_LABEL, Revision};
use model::StatefulSet;
use revisions::History;

pub const ROW: Row = Row {
    name: "statefulset",
    account: "statefulset-controller",
    queue: "statefulset",
    workers: 5,
    start,
};

struct Controller {
    sets: Arc<Cache<StatefulSet>>,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<Metadata>>,
    revisions: Arc<Cache<Revision>>,
}

struct View {
    set: Arc<StatefulSet>,
    /// Pods that the set controls, and pods of its namespace that nobody controls and whose names are of the set.
    candidates: Vec<Arc<Pod>>,
    /// Revisions that the set controls, or that nobody does.
    revisions: Vec<Arc<Revision>>,
    /// The volume claims that are there, by name, of those that the set's pods have.
    claims: HashMap<String, Arc<Metadata>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let sets = setup.cache::<StatefulSet>(&STATEFUL_SET);
    let pods = setup.cache::<Pod>(&POD);
    let claims = setup.cache::<Metadata>(&PERSISTENT_VOLUME_CLAIM);
    let revisions = setup.cache::<Revision>(&CONTROLLER_REVISION);
    claim::add_indexes(&pods);
    claim::add_indexes(&revisions);
    setup.watch_own(&sets);
    claim::watch_dependents(setup, &STATEFUL_SET, &sets, &pods, |set, pod| {
        set.selector().matches(&pod.labels)
    });
    setup.watch(&revisions, |revision| {
        controller_key(&revision.metadata, STATEFUL_SET.kind)
    });
    Box::new(Controller {
        sets,
        pods,
        claims,
        revisions,
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
        let set = self.sets.get_key(key.as_str())?;
        let mut candidates = claim::candidates(&self.pods, &set.metadata);
        candidates.retain(|pod| pod.metadata.controller().is_some() || set.ordinal_of(&pod.metadata.name).is_some());
        let ordinals = set
            .ordinals()
            .chain(candidates.iter().filter_map(|pod| set.ordinal_of(&pod.metadata.name)));
        let names = ordinals.flat_map(|ordinal| set.claim_names(ordinal));
        let claims = names.filter_map(|name| {
            let claim = self.claims.get(&set.metadata.namespace, &name)?;
            Some((name, claim))
        });
        Some(View {
            claims: claims.collect(),
            revisions: claim::candidates(&self.revisions, &set.metadata),
            candidates,
            set,
        })
    }
}

/// A set while it is planned.
struct Planner<'a> {
    view: &'a View,
    set: &'a StatefulSet,
    now: Moment,
    history: &'a History,
    /// The set's pods by ordinal.
    pods: Vec<(i64, Arc<Pod>)>,
    plan: Plan,
}

fn plan(view: &View, now: Moment) -> Plan {
    let set = &*view.set;
    let selector = set.selector();
    let mut plan = Plan::default();
    if selector.is_empty() {
        // A selector that selects everything would take over every pod of the namespace; validation forbids it.
        return plan;
    }
    let owner = (&STATEFUL_SET, &set.metadata);
    let claims = claim::claim(owner, &selector, &POD, &view.candidates);
    let revisions = claim::claim(owner, &selector, &CONTROLLER_REVISION, &view.revisions);
    plan.actions = claims.actions;
    plan.actions.extend(revisions.actions);
    let claiming = !plan.actions.is_empty();
    let history = revisions::find(set, revisions.owned);
    let mut pods: Vec<(i64, Arc<Pod>)> = claims
        .owned
        .iter()
        .filter_map(|pod| Some((set.ordinal_of(&pod.metadata.name)?, pod.clone())))
        .collect();
    pods.sort_by_key(|(ordinal, _)| *ordinal);
    let mut planner = Planner {
        view,
        set,
        now,
        history: &history,
        pods,
        plan,
    };
    // After an adoption or a release what there is is known only once the cache shows it.
    if !claiming && !set.metadata.is_deleting() {
        planner.plan.actions.extend(history.action(set));
        planner.settle();
        let trimmed = history.trim(set, &planner.pods);
        planner.plan.actions.extend(trimmed);
    }
    planner.finish()
}

impl Planner<'_> {
    fn finish(mut self) -> Plan {
        let next = self.progress();
        let set = self.set;
        let pods: Vec<Arc<Pod>> = self.pods.iter().map(|(_, pod)| pod.clone()).collect();
        if let Some(delay) = crate::workloads::replicas::next_available(&pods, set.spec.min_ready_seconds, self.now) {
            self.plan.again_after(delay);
        }
        self.plan.status = status::patch(&STATEFUL_SET, &set.metadata, &set.status, next);
        self.plan
    }

    fn progress(&self) -> Value {
        let all = || self.pods.iter().map(|(_, pod)| &**pod);
        let count = |holds: &dyn Fn(&Pod) -> bool| {
            all().filter(|pod| !pod.status.phase.is_empty() && holds(pod)).count() as i64
        };
        let of = |revision: &str| count(&|pod| !pod.metadata.is_deleting() && revision_of(pod) == revision);
        let (current, update) = (&self.history.current.name, &self.history.update.name);
        let replicas = count(&|_| true);
        let ready = count(&order::is_ready);
        let (mut current_replicas, updated) = (of(current), of(update));
        let mut current = current;
        let wanted = self.set.replicas();
        // The rollout is complete when every pod is of the new template and ready.
        if self.set.is_rolling_update() && [replicas, ready, updated] == [wanted; 3] {
            (current, current_replicas) = (update, updated);
        }
        json!({
            "replicas": replicas,
            "readyReplicas": ready,
            "availableReplicas": count(&|pod| self.is_available(pod)),
            "currentReplicas": current_replicas,
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": update,
            "observedGeneration": self.set.metadata.generation,
            "collisionCount": self.history.collisions,
        })
    }

    fn is_available(&self, pod: &Pod) -> bool {
        order::is_ready(pod) && pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }
}

fn revision_of(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str)
}

#[cfg(test)]
mod tests;
