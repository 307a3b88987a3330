//! Jobs: pods that run to their end, as many as must succeed.
//!
//! One plan is one look at the job's pods: `tally` counts them, `verdict` says whether the job has ended, `pods` starts
//! and removes pods, and `status` writes what `tracking` has counted.

mod backoff;
mod indexes;
pub mod model;
mod pods;
mod policy;
mod status;
mod tally;
mod tracking;
mod verdict;

use std::sync::Arc;

use api::ObjectMeta;
use api::kinds::job::JOB;
use api::kinds::pod::POD;
use api::selector::Selector;
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Key};
use serde_json::json;

use self::model::{Job, TRACKING, is_tracked};
use self::tally::Tally;
use crate::claim;
use crate::driver::{Attempt, Reconcile, Row, Setup, controller_key};
use crate::model::Pod;
use crate::plan::{Action, Plan};

pub const ROW: Row = Row {
    name: "job",
    account: "job-controller",
    queue: "job",
    workers: 5,
    start,
};

/// Files pods with the tracking finalizer under the key of their job.
const TRACKED: &str = "tracked";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

struct Controller {
    jobs: Arc<Cache<Job>>,
    pods: Arc<Cache<Pod>>,
}

struct View {
    job: Option<Arc<Job>>,
    /// Pods that the job controls, and pods of its namespace that nobody controls.
    candidates: Vec<Arc<Pod>>,
    /// Pods with the finalizer that belong, or once belonged, to a job of this name.
    tracked: Vec<Arc<Pod>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let jobs = setup.cache::<Job>(&JOB);
    let pods = setup.cache::<Pod>(&POD);
    claim::add_indexes(&pods);
    pods.add_index(TRACKED, |pod| {
        let key = tracking_key(pod).into_iter();
        key.map(|key| key.as_str().to_owned()).collect()
    });
    setup.watch_own(&jobs);
    let known = jobs.clone();
    setup.watch(&pods, move |pod| match pod.metadata.controller() {
        Some(_) => controller_key(&pod.metadata, JOB.kind),
        None => {
            let mut keys = claim::selecting(&known, &pod.metadata, selects);
            keys.extend(tracking_key(pod));
            keys
        }
    });
    Box::new(Controller { jobs, pods })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let job = self.jobs.get_key(key.as_str());
        let candidates = job.as_ref().map(|job| claim::candidates(&self.pods, &job.metadata));
        let view = View {
            candidates: candidates.unwrap_or_default(),
            tracked: self.pods.by(TRACKED, key.as_str()),
            job,
        };
        Ok(plan(&view, attempt.now))
    }
}

fn plan(view: &View, now: Moment) -> Plan {
    let mut plan = Plan::default();
    let orphans = view.tracked.iter().filter(|pod| is_orphan(view, pod));
    plan.actions.extend(orphans.map(|pod| tracking::untrack(pod)));
    let live = view.job.as_ref().filter(|job| job.is_ours() && !job.is_finished());
    let Some(job) = live else { return plan };
    let selector = selector(job);
    if selector.is_empty() {
        // A selector that selects everything would take over every pod of the namespace; validation forbids it.
        return plan;
    }
    let claims = claim::claim((&JOB, &job.metadata), &selector, &POD, &view.candidates);
    if !claims.actions.is_empty() {
        // What there is to count is known once the cache shows whose pods these are.
        let tracked = claims
            .actions
            .into_iter()
            .map(|action| with_finalizer(action, &view.candidates));
        plan.actions.extend(tracked);
        return plan;
    }
    reconcile(job, &claims.owned, now, &mut plan);
    plan
}

fn reconcile(job: &Job, pods: &[Arc<Pod>], now: Moment, plan: &mut Plan) {
    let tally = Tally::new(job, pods);
    let verdict = verdict::judge(job, &tally, pods, now);
    match &verdict {
        Some(_) => plan
            .actions
            .extend(tally.active.iter().map(|pod| pods::delete(job, pod))),
        None if !job.metadata.is_deleting() => pods::manage(job, &tally, pods, now, plan),
        None => {}
    }
    if verdict.is_none()
        && let Some(deadline) = verdict::deadline(job)
    {
        plan.again_after(deadline.since(now));
    }
    // Pods that were told to stop are counted from when the cache shows it.
    let effective = verdict.as_ref().filter(|_| tally.active.is_empty());
    let tracking = tracking::track(job, &tally, pods, effective);
    status::settle(job, &tally, pods, (verdict.as_ref(), &tracking), now, plan);
}

fn selector(job: &Job) -> Selector {
    job.spec.selector.as_ref().map(Selector::from).unwrap_or_default()
}

fn selects(job: &Job, pod: &ObjectMeta) -> bool {
    let selector = selector(job);
    !selector.is_empty() && selector.matches(&pod.labels)
}

/// The key under which a pod with the finalizer is looked after, even when its job is gone.
fn tracking_key(pod: &Pod) -> Option<Key> {
    let metadata = Some(&pod.metadata).filter(|_| is_tracked(pod))?;
    let name = match metadata.controller() {
        Some(owner) if owner.kind == JOB.kind => &owner.name,
        Some(_) => return None,
        None => metadata.labels.get(JOB_NAME).unwrap_or(&metadata.name),
    };
    Some(Key::new(&metadata.namespace, name))
}

/// Whether no job will ever count this pod, so that its finalizer would keep it forever.
fn is_orphan(view: &View, pod: &Pod) -> bool {
    let Some(job) = &view.job else { return true };
    match pod.metadata.controller() {
        Some(owner) if owner.uid != job.metadata.uid => true,
        Some(_) => job.is_ours() && job.is_finished(),
        None => job.is_finished() || job.metadata.is_deleting() || !selects(job, &pod.metadata),
    }
}

/// Pods get the finalizer when they are adopted and lose it when they are released.
fn with_finalizer(mut action: Action, candidates: &[Arc<Pod>]) -> Action {
    let (patch, adopts) = match &mut action {
        Action::Adopt(adopt) => (&mut adopt.patch, true),
        Action::Patch(patch) => (patch, false),
        _ => return action,
    };
    let pod = candidates.iter().find(|pod| pod.metadata.name == patch.name);
    let finalizers = pod.into_iter().flat_map(|pod| &pod.metadata.finalizers);
    let mut finalizers: Vec<&str> = finalizers
        .map(String::as_str)
        .filter(|name| *name != TRACKING)
        .collect();
    finalizers.extend(adopts.then_some(TRACKING));
    patch.body["metadata"]["finalizers"] = json!(finalizers);
    action
}

#[cfg(test)]
mod tests;
