//! DaemonSets: one pod on every node that the template fits.
//!
//! [`plan`] finds the revision of the current template (`revisions`), gives every node its pod and takes away what is
//! too much (`nodes`), replaces pods of old templates (`rollout`), and tells how far it is (`progress`).

mod model;
mod nodes;
mod pods;
mod progress;
mod revisions;
mod rollout;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::kinds::controller_revision::CONTROLLER_REVISION;
use api::kinds::daemon_set::DAEMON_SET;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::{Fields, ObjectMeta, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Backoff, Cache, Key};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::claim;
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Node, Pod};
use crate::nodes::node_fit::{self, Fit};
use crate::plan::{Action, Plan};
use crate::status;
use crate::workloads::history::Revision;
use model::DaemonSet;

pub const ROW: Row = Row {
    name: "daemonset",
    account: "daemon-set-controller",
    queue: "daemonset",
    workers: 2,
    start,
};

/// The pods that one plan creates or deletes at most; the rest follows when these are seen.
const MAX_CHANGES: usize = 250;
/// How long a pod that failed again and again is left alone before it is replaced.
const AFTER_FAILURE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15 * 60));
/// Failures are forgotten after this time; it also bounds how many are remembered.
const FAILURE_MEMORY: Duration = Duration::from_secs(30 * 60);

struct Controller {
    sets: Arc<Cache<DaemonSet>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    revisions: Arc<Cache<Revision>>,
    failures: Mutex<HashMap<FailurePlace, Failures>>,
}

/// A set's UID and a node's name.
type FailurePlace = (String, String);

/// The failed pods that a set had on a node.
struct Failures {
    count: u32,
    /// The newest pod that failed, and when that was seen.
    pod: String,
    since: Instant,
}

struct View {
    set: Arc<DaemonSet>,
    /// Pods that the set controls, and pods of its namespace that nobody controls.
    candidates: Vec<Arc<Pod>>,
    /// Revisions likewise.
    revisions: Vec<Arc<Revision>>,
    nodes: Vec<Arc<Node>>,
    /// How much longer failed pods are to be left alone, by UID.
    patience: HashMap<String, Duration>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let sets = setup.cache::<DaemonSet>(&DAEMON_SET);
    let pods = setup.cache::<Pod>(&POD);
    let nodes = setup.cache::<Node>(&NODE);
    let revisions = setup.cache::<Revision>(&CONTROLLER_REVISION);
    claim::add_indexes(&pods);
    claim::add_indexes(&revisions);
    setup.watch_own(&sets);
    claim::watch_dependents(setup, &DAEMON_SET, &sets, &pods, selects);
    // Revisions that have an owner are only ever changed by it, or by someone who does not want it to notice.
    let known = sets.clone();
    setup.watch(&revisions, move |revision| match revision.metadata.controller() {
        Some(_) => Vec::new(),
        None => claim::selecting(&known, &revision.metadata, selects),
    });
    watch_nodes(setup, &nodes, &sets);
    Box::new(Controller {
        sets,
        pods,
        nodes,
        revisions,
        failures: Mutex::default(),
    })
}

fn selects(set: &DaemonSet, metadata: &ObjectMeta) -> bool {
    set.selector().matches(&metadata.labels)
}

/// Every set looks again when a node comes, goes, or changes in what decides where pods go; heartbeats do not count.
fn watch_nodes(setup: &Setup<'_>, nodes: &Cache<Node>, sets: &Arc<Cache<DaemonSet>>) {
    let (queue, sets) = (setup.queue(), sets.clone());
    nodes.on_change(move |old, new| {
        let same = matches!((old, new), (Some(old), Some(new))
            if old.metadata.labels == new.metadata.labels && old.spec.taints == new.spec.taints);
        if !same {
            sets.list("")
                .iter()
                .for_each(|set| queue.add(client::Object::key(&**set)));
        }
    });
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
        let candidates = claim::candidates(&self.pods, &set.metadata);
        Some(View {
            patience: self.patience(&set, &candidates),
            revisions: claim::candidates(&self.revisions, &set.metadata),
            nodes: self.nodes.list(""),
            candidates,
            set,
        })
    }

    /// Counts pods that failed, and says for how long each still stands in for its successor.
    fn patience(&self, set: &DaemonSet, pods: &[Arc<Pod>]) -> HashMap<String, Duration> {
        let mut failures = self.failures.lock();
        failures.retain(|_, failures| failures.since.elapsed() < FAILURE_MEMORY);
        let failed = pods.iter().filter(|pod| pod.status.phase == "Failed");
        let waits = failed.map(|pod| {
            let uid = &pod.metadata.uid;
            let place = (set.metadata.uid.clone(), pods::target_node(pod).unwrap_or_default());
            let failures = failures.entry(place).or_insert_with(|| Failures {
                count: 0,
                pod: String::new(),
                since: Instant::now(),
            });
            if failures.pod != *uid {
                failures.count += 1;
                failures.pod.clone_from(uid);
                failures.since = Instant::now();
            }
            // The first failure is made good at once.
            let wait = match failures.count {
                0 | 1 => Duration::ZERO,
                count => AFTER_FAILURE.exact(count - 2),
            };
            (uid.clone(), wait.saturating_sub(failures.since.elapsed()))
        });
        waits.collect()
    }
}

/// A set while it is planned.
struct Planner<'a> {
    view: &'a View,
    set: &'a DaemonSet,
    now: Moment,
    /// How the template fits each node.
    fits: Vec<(&'a Node, Fit)>,
    /// The set's pods by the node they are on or bound for; those of nodes that are gone as well.
    pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// What pods of the current template have as their revision label.
    hash: String,
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
    let claims = claim::claim((&DAEMON_SET, &set.metadata), &selector, &POD, &view.candidates);
    let revisions = claim::claim(
        (&DAEMON_SET, &set.metadata),
        &selector,
        &CONTROLLER_REVISION,
        &view.revisions,
    );
    plan.actions = claims.actions;
    plan.actions.extend(revisions.actions);
    let claiming = !plan.actions.is_empty();
    let history = revisions::find(set, revisions.owned, &claims.owned);
    let mut planner = Planner::new(view, now, &claims.owned, history.hash.clone(), plan);
    // After an adoption or a release what there is is known only once the cache shows it.
    if !claiming && !set.metadata.is_deleting() {
        let before = history.actions.len();
        planner.plan.actions.extend(history.actions);
        planner.manage();
        if planner.plan.actions.len() == before && set.is_rolling_update() {
            planner.roll();
        }
        planner
            .plan
            .actions
            .extend(revisions::trim(set, &history.old, &claims.owned));
    }
    planner.finish(&claims.owned, history.collisions)
}

impl<'a> Planner<'a> {
    fn new(view: &'a View, now: Moment, owned: &[Arc<Pod>], hash: String, plan: Plan) -> Planner<'a> {
        let spec = pods::tolerant_spec(&view.set.template()["spec"]);
        let mut pods: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in owned {
            if let Some(node) = pods::target_node(pod) {
                pods.entry(node).or_default().push(pod.clone());
            }
        }
        pods.values_mut().for_each(|pods| pods::sort(pods));
        Planner {
            view,
            set: &view.set,
            now,
            fits: view
                .nodes
                .iter()
                .map(|node| (&**node, node_fit::fit(&spec, node)))
                .collect(),
            pods,
            hash,
            plan,
        }
    }

    fn pods_on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a pod is of the current template; old clients count templates instead.
    fn is_current(&self, pod: &Pod) -> bool {
        let label = |name: &str| pod.metadata.labels.get(name);
        let generation = self.set.template_generation();
        label(crate::workloads::history::REVISION_LABEL) == Some(&self.hash)
            || (generation.is_some() && label(pods::TEMPLATE_GENERATION_LABEL) == generation.as_ref())
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    fn finish(mut self, owned: &[Arc<Pod>], collisions: i64) -> Plan {
        let mut next = self.progress();
        next.set(
            "collisionCount",
            if collisions > 0 { collisions.into() } else { Value::Null },
        );
        let set = self.set;
        if let Some(delay) = crate::workloads::replicas::next_available(owned, set.spec.min_ready_seconds, self.now) {
            self.plan.again_after(delay);
        }
        self.plan.status = status::patch(&DAEMON_SET, &set.metadata, &set.status, next);
        self.plan
    }

    fn act(&mut self, action: Action) {
        self.plan.actions.push(action);
    }
}

#[cfg(test)]
mod tests;
