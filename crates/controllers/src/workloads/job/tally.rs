//! Where a job stands: its pods sorted and counted, together with what its status has counted already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Fields;

use super::backoff::finished;
use super::indexes::Indexes;
use super::model::{Job, failures_before, index, is_tracked};
use super::policy::{Failure, failure};
use crate::model::Pod;

pub struct Tally {
    pub active: Vec<Arc<Pod>>,
    pub terminating: i64,
    pub ready: i64,
    /// Pods that the status names but has not added to its counters yet, by UID.
    pub uncounted_succeeded: BTreeSet<String>,
    pub uncounted_failed: BTreeSet<String>,
    /// All that succeeded and failed, whether the status counts them yet or not.
    pub succeeded: i64,
    pub failed: i64,
    pub completed: Indexes,
    /// Only of jobs that count failures by index.
    pub failed_indexes: Option<Indexes>,
    /// The last failed pod of each index that waits for its replacement, which must learn of the failures so far.
    pub retained: BTreeMap<i64, Arc<Pod>>,
}

impl Tally {
    pub fn new(job: &Job, pods: &[Arc<Pod>]) -> Tally {
        let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pod.is_active()).cloned().collect();
        let terminating = pods
            .iter()
            .filter(|pod| pod.metadata.is_deleting() && !pod.is_finished());
        let [uncounted_succeeded, uncounted_failed] = ["succeeded", "failed"].map(|list| uncounted(job, list));
        let mut tally = Tally {
            ready: count(active.iter().filter(|pod| pod.is_ready())),
            terminating: count(terminating),
            active,
            uncounted_succeeded,
            uncounted_failed,
            succeeded: 0,
            failed: 0,
            completed: Indexes::default(),
            failed_indexes: None,
            retained: BTreeMap::new(),
        };
        tally.count(job, pods);
        if job.is_indexed() {
            tally.count_indexes(job, pods);
        }
        tally
    }

    fn count(&mut self, job: &Job, pods: &[Arc<Pod>]) {
        let fresh: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_tracked(pod) && job.counts(pod)).collect();
        let succeeded = fresh
            .iter()
            .filter(|pod| pod.status.phase == "Succeeded" && !self.uncounted_succeeded.contains(&pod.metadata.uid));
        let failed = fresh
            .iter()
            .filter(|pod| job.is_failed(pod) && !self.uncounted_failed.contains(&pod.metadata.uid))
            .filter(|pod| failure(job, pod) != Failure::Ignored);
        self.succeeded = job.status.number("succeeded") + count(succeeded) + count(self.uncounted_succeeded.iter());
        self.failed = job.status.number("failed") + count(failed) + count(self.uncounted_failed.iter());
    }

    fn count_indexes(&mut self, job: &Job, pods: &[Arc<Pod>]) {
        let tracked = || pods.iter().filter(|pod| is_tracked(pod) && job.counts(pod));
        let succeeded = tracked().filter(|pod| pod.status.phase == "Succeeded");
        self.completed = job.completed_indexes().with(succeeded.filter_map(|pod| index(pod)));
        self.succeeded = self.completed.len();
        let Some(limit) = job.spec.backoff_limit_per_index else {
            return;
        };
        let failed = tracked()
            .filter(|pod| fails_index(job, pod, limit))
            .filter_map(|pod| index(pod));
        let failed = Indexes::parse(job.status.text("failedIndexes"), job.end()).with(failed);
        let over = Indexes::default().with(self.active.iter().filter_map(|pod| index(pod)));
        let over = over.and(&self.completed).and(&failed);
        for pod in tracked().filter(|pod| job.is_failed(pod)) {
            let Some(index) = index(pod).filter(|index| !over.contains(*index)) else {
                continue;
            };
            let later = self.retained.get(&index).is_none_or(|known| {
                let rank = |pod: &Pod| failures_before(pod).0 + failures_before(pod).1;
                rank(known) <= rank(pod) && finished(pod) >= finished(known)
            });
            if later {
                self.retained.insert(index, pod.clone());
            }
        }
        self.failed_indexes = Some(failed);
    }
}

fn fails_index(job: &Job, pod: &Pod, limit: i64) -> bool {
    job.is_failed(pod)
        && match failure(job, pod) {
            Failure::FailsIndex => true,
            Failure::Ignored => false,
            Failure::Counts | Failure::FailsJob(_) => failures_before(pod).0 >= limit,
        }
}

fn uncounted(job: &Job, list: &str) -> BTreeSet<String> {
    let uids = job.status["uncountedTerminatedPods"].list(list).iter();
    uids.filter_map(|uid| uid.as_str().map(str::to_owned)).collect()
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}
