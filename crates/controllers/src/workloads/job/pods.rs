//! The pods that a job starts and removes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::job::JOB;
use api::kinds::pod::POD;
use api::{Fields, Value};
use client::ObjectReference;
use client::when::Moment;
use serde_json::json;

use super::backoff;
use super::indexes::Indexes;
use super::model::{COMPLETION_INDEX, Job, TRACKING, failures_before, index, note_failures};
use super::policy::{Failure, failure};
use super::tally::Tally;
use crate::model::Pod;
use crate::plan::{Action, Announce, Create, Delete, Plan};
use crate::workloads::{replicas, template};

/// The pods that one plan creates or deletes at most; the rest follows when these are seen.
const MAX_CHANGES: usize = 500;
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest prefix of a generated name.
const MAX_PREFIX: usize = 58;

/// Brings the number of active pods to what the job wants now.
pub fn manage(job: &Job, tally: &Tally, pods: &[Arc<Pod>], now: Moment, plan: &mut Plan) {
    let active = tally.active.len() as i64;
    let wanted = if job.spec.suspend {
        0
    } else {
        wanted(job, tally, active)
    };
    let excess = usize::try_from(active - wanted).unwrap_or(0);
    let mut victims = to_remove(job, &tally.active, excess, now);
    if !victims.is_empty() {
        // Creations wait until these are gone.
        victims.truncate(MAX_CHANGES);
        plan.actions.extend(victims.iter().map(|pod| delete(job, pod)));
        return;
    }
    if job.spec.suspend {
        return;
    }
    let waiting = if job.replaces_only_failed() {
        tally.terminating
    } else {
        0
    };
    let missing = usize::try_from(wanted - waiting - active).unwrap_or(0).min(MAX_CHANGES);
    if missing > 0 {
        add(job, tally, pods, missing, now, plan);
    }
}

pub fn delete(job: &Job, pod: &Pod) -> Action {
    let mut delete = Delete::new(&POD, &pod.metadata);
    delete.announce = Some(Announce {
        about: ObjectReference::new(&JOB, &job.metadata),
        success: ("SuccessfulDelete", "Deleted pod: ".to_owned()),
        failure: Some(("FailedDelete", "Error deleting: ".into())),
    });
    Action::Delete(delete)
}

fn wanted(job: &Job, tally: &Tally, active: i64) -> i64 {
    let parallelism = job.spec.parallelism.unwrap_or(1);
    match job.spec.completions {
        Some(completions) => (completions - tally.succeeded).clamp(0, parallelism.max(0)),
        // After the first success nothing new starts and nothing that runs is stopped.
        None if tally.succeeded > 0 => active,
        None => parallelism,
    }
}

/// At least `excess` pods; of an indexed job also those that share an index or have none.
fn to_remove(job: &Job, active: &[Arc<Pod>], excess: usize, now: Moment) -> Vec<Arc<Pod>> {
    let (mut removed, mut kept) = (Vec::new(), Vec::new());
    if job.is_indexed() {
        let mut by_index: BTreeMap<i64, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in active {
            match index(pod).filter(|index| *index < job.end()) {
                Some(index) => by_index.entry(index).or_default().push(pod.clone()),
                None => removed.push(pod.clone()),
            }
        }
        for same in by_index.into_values() {
            let surplus = replicas::to_delete(&same, &same, same.len() - 1, now);
            let is_kept = |pod: &Arc<Pod>| surplus.iter().all(|other| other.metadata.uid != pod.metadata.uid);
            kept.extend(same.iter().filter(|pod| is_kept(pod)).cloned());
            removed.extend(surplus);
        }
    } else {
        kept = active.to_vec();
    }
    let more = excess.saturating_sub(removed.len());
    removed.extend(replicas::to_delete(&kept, &kept, more, now));
    removed
}

fn add(job: &Job, tally: &Tally, pods: &[Arc<Pod>], missing: usize, now: Moment, plan: &mut Plan) {
    if job.spec.backoff_limit_per_index.is_none() {
        let pause = backoff::remaining(job, pods.iter().map(|pod| &**pod), now);
        if pause > Duration::ZERO {
            return plan.again_after(pause);
        }
    }
    if !job.is_indexed() {
        let pod = new_pod(job, None, tally);
        return plan.actions.extend((0..missing).map(|_| create(job, pod.clone())));
    }
    for index in pending(job, tally, pods, missing) {
        let pause = tally
            .retained
            .get(&index)
            .map(|last| backoff::remaining_of_index(last, now));
        match pause.filter(|pause| *pause > Duration::ZERO) {
            Some(pause) => plan.again_after(pause),
            None => plan.actions.push(create(job, new_pod(job, Some(index), tally))),
        }
    }
}

/// The first indexes that nothing works on and that have not ended.
fn pending(job: &Job, tally: &Tally, pods: &[Arc<Pod>], count: usize) -> Vec<i64> {
    let busy = pods.iter().filter(|pod| {
        pod.is_active() || (job.replaces_only_failed() && pod.metadata.is_deleting() && !pod.is_finished())
    });
    let mut taken: Indexes = tally.completed.with(busy.filter_map(|pod| index(pod)));
    if let Some(failed) = &tally.failed_indexes {
        taken = taken.and(failed);
    }
    taken.missing(job.end(), count)
}

fn create(job: &Job, pod: Value) -> Action {
    let mut create = Create::new(&POD, &job.metadata.namespace, pod);
    create.mark = Some("job-controller/pod-created");
    create.announce = Some(Announce {
        about: ObjectReference::new(&JOB, &job.metadata),
        success: ("SuccessfulCreate", "Created pod: ".to_owned()),
        failure: Some(("FailedCreate", "Error creating: ".into())),
    });
    Action::Create(create)
}

fn new_pod(job: &Job, index: Option<i64>, tally: &Tally) -> Value {
    let mut pod = template::pod(&job.template(), &JOB, &job.metadata);
    let metadata = pod.ensure("metadata");
    let mut finalizers = metadata.list("finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        finalizers.push(TRACKING.into());
    }
    metadata.set("finalizers", finalizers);
    if let Some(index) = index {
        set_index(&mut pod, job, index, tally.retained.get(&index).map(|last| &**last));
    }
    pod
}

/// Tells the pod its index: by annotation, label, environment, name and host name.
fn set_index(pod: &mut Value, job: &Job, index: i64, replaced: Option<&Pod>) {
    let metadata = pod.ensure("metadata");
    metadata.set("generateName", prefix(&job.metadata.name, index));
    for map in ["annotations", "labels"] {
        metadata.ensure(map).set(COMPLETION_INDEX, index.to_string());
    }
    if job.spec.backoff_limit_per_index.is_some() {
        let (failures, ignored) = replaced.map(|last| failures_with(job, last)).unwrap_or_default();
        note_failures(metadata.ensure("annotations"), failures, ignored);
    }
    let spec = pod.ensure("spec");
    spec.set("hostname", format!("{}-{index}", job.metadata.name));
    for list in ["initContainers", "containers"] {
        for container in spec.list_mut(list) {
            let mut variables = container.list("env").to_vec();
            if variables.iter().all(|variable| variable.text("name") != INDEX_VARIABLE) {
                let field = format!("metadata.labels['{COMPLETION_INDEX}']");
                variables.push(json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": field}}}));
                container.set("env", variables);
            }
        }
    }
}

/// The failures of an index when this pod's is among them.
fn failures_with(job: &Job, last: &Pod) -> (i64, i64) {
    let (failures, ignored) = failures_before(last);
    match failure(job, last) {
        Failure::Ignored => (failures, ignored + 1),
        _ => (failures + 1, ignored),
    }
}

fn prefix(job: &str, index: i64) -> String {
    let end = format!("-{index}-");
    let start: String = job.chars().take(MAX_PREFIX.saturating_sub(end.len())).collect();
    format!("{start}{end}")
}
