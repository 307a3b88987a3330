//! Counting each pod exactly once: the status names a pod, then the pod loses its finalizer, then the counter moves.
//! Each step is a write of its own, taken only when the one before it is seen in the caches.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Fields;
use api::kinds::pod::POD;
use serde_json::json;

use super::model::{Job, TRACKING, index, is_tracked};
use super::policy::{Failure, failure};
use super::tally::Tally;
use super::verdict::Verdict;
use crate::model::Pod;
use crate::plan::{Action, Form, Patch};

/// The pods that the status names at a time.
const MAX_UNCOUNTED: usize = 500;

/// The next state of the counters.
pub struct Tracking {
    pub uncounted_succeeded: Vec<String>,
    pub uncounted_failed: Vec<String>,
    pub succeeded: i64,
    pub failed: i64,
    /// Pods that may lose their finalizer once the status says the above.
    pub counted: Vec<Arc<Pod>>,
    /// There are more pods than the status may name; they come next.
    pub is_full: bool,
}

/// `verdict` is that of a job whose active pods have all been told to stop.
pub fn track(job: &Job, tally: &Tally, pods: &[Arc<Pod>], verdict: Option<&Verdict>) -> Tracking {
    let mut tracked: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_tracked(pod)).collect();
    tracked.sort_by_key(|pod| index(pod));
    let uids: BTreeSet<&String> = tracked.iter().map(|pod| &pod.metadata.uid).collect();
    let split = |named: &BTreeSet<String>| -> (Vec<String>, i64) {
        let (kept, gone): (Vec<String>, Vec<String>) = named.iter().cloned().partition(|uid| uids.contains(uid));
        (kept, gone.len() as i64)
    };
    let (uncounted_succeeded, succeeded) = split(&tally.uncounted_succeeded);
    let (uncounted_failed, failed) = split(&tally.uncounted_failed);
    let mut tracking = Tracking {
        uncounted_succeeded,
        uncounted_failed,
        succeeded: job.status.number("succeeded") + succeeded,
        failed: job.status.number("failed") + failed,
        counted: Vec::new(),
        is_full: false,
    };
    if job.is_indexed() {
        // The indexes themselves say which pods were counted.
        tracking.succeeded = tally.completed.len();
    }
    for pod in tracked {
        if !may_go(job, tally, pod, verdict) {
            continue;
        }
        tracking.counted.push(pod.clone());
        tracking.name(job, pod, verdict);
        if tracking.counted.len() >= MAX_UNCOUNTED {
            tracking.is_full = true;
            break;
        }
    }
    tracking
}

impl Tracking {
    /// Names the pod in the list it belongs to.
    fn name(&mut self, job: &Job, pod: &Pod, verdict: Option<&Verdict>) {
        let uid = &pod.metadata.uid;
        if self.uncounted_failed.contains(uid) {
            return;
        }
        if pod.status.phase == "Succeeded" {
            if !job.is_indexed() && !self.uncounted_succeeded.contains(uid) {
                self.uncounted_succeeded.push(uid.clone());
            }
            return;
        }
        let stopped = verdict.is_some_and(|verdict| !verdict.succeeds);
        let fails = (job.is_failed(pod) || stopped) && job.counts(pod);
        if fails && failure(job, pod) != Failure::Ignored {
            self.uncounted_failed.push(uid.clone());
        }
    }
}

/// Whether nothing about the pod is needed any more once it is counted.
fn may_go(job: &Job, tally: &Tally, pod: &Pod, verdict: Option<&Verdict>) -> bool {
    if job.metadata.is_deleting() || verdict.is_some() || pod.status.phase == "Succeeded" {
        return true;
    }
    let retained = index(pod).and_then(|index| tally.retained.get(&index));
    job.is_failed(pod) && retained.is_none_or(|last| last.metadata.uid != pod.metadata.uid)
}

/// Takes the finalizer off the pod, which may be changing and may be going meanwhile.
pub fn untrack(pod: &Pod) -> Action {
    let body = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}});
    Action::Patch(Patch {
        form: Form::Strategic,
        at_once: true,
        ..Patch::new(&POD, &pod.metadata, body)
    })
}
