//! Whether a job has come to its end, and why.

use std::sync::Arc;

use api::{Fields, Value};
use client::when::Moment;

use super::model::Job;
use super::policy::{self, Failure};
use super::tally::Tally;
use crate::conditions;
use crate::model::Pod;

/// The end of a job. It stands in the status as an interim condition until all pods are gone and counted.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    pub succeeds: bool,
    pub reason: String,
    pub message: String,
}

impl Verdict {
    pub fn interim(&self) -> &'static str {
        if self.succeeds {
            "SuccessCriteriaMet"
        } else {
            "FailureTarget"
        }
    }

    pub fn terminal(&self) -> &'static str {
        if self.succeeds { "Complete" } else { "Failed" }
    }
}

/// Once there is a verdict it stays; failures are judged before successes.
pub fn judge(job: &Job, tally: &Tally, pods: &[Arc<Pod>], now: Moment) -> Option<Verdict> {
    standing(job)
        .or_else(|| failed(job, tally, pods, now))
        .or_else(|| failed_by_index(job, tally))
        .or_else(|| succeeded(job, tally))
}

fn standing(job: &Job) -> Option<Verdict> {
    let conditions = job.status.list("conditions");
    let read = |kind: &str, succeeds: bool| {
        let condition: &Value = conditions::find(conditions, kind).filter(|_| job.holds(kind))?;
        Some(Verdict {
            succeeds,
            reason: condition.text("reason").to_owned(),
            message: condition.text("message").to_owned(),
        })
    };
    read("SuccessCriteriaMet", true).or_else(|| read("FailureTarget", false))
}

fn failed(job: &Job, tally: &Tally, pods: &[Arc<Pod>], now: Moment) -> Option<Verdict> {
    let fatal = pods
        .iter()
        .filter(|pod| job.is_failed(pod))
        .find_map(|pod| match policy::failure(job, pod) {
            Failure::FailsJob(message) => Some(message),
            _ => None,
        });
    if let Some(message) = fatal {
        return Some(failure("PodFailurePolicy", message));
    }
    if tally.failed > backoff_limit(job) || restarts_too_often(job, pods) {
        return Some(failure(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ));
    }
    let late = deadline(job).is_some_and(|deadline| deadline <= now);
    late.then(|| failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

fn failed_by_index(job: &Job, tally: &Tally) -> Option<Verdict> {
    let failed = tally.failed_indexes.as_ref()?.len();
    if job.spec.max_failed_indexes.is_some_and(|most| failed > most) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(failure("MaxFailedIndexesExceeded", message));
    }
    let all_ended = failed > 0 && failed + tally.completed.len() >= job.end();
    all_ended.then(|| failure("FailedIndexes", "Job has failed indexes"))
}

fn succeeded(job: &Job, tally: &Tally) -> Option<Verdict> {
    if let Some(rule) = policy::success(job, &tally.completed) {
        return Some(success("SuccessPolicy", format!("Matched rules at index {rule}")));
    }
    let enough = match job.spec.completions {
        Some(completions) => tally.succeeded >= completions,
        // Any pod that succeeds ends the work of all; the others may still finish.
        None => tally.succeeded > 0,
    };
    let message = "Reached expected number of succeeded pods";
    (enough && tally.active.is_empty()).then(|| success("CompletionsReached", message))
}

/// When the job must have ended; suspended jobs have all the time.
pub fn deadline(job: &Job) -> Option<Moment> {
    let seconds = job.spec.active_deadline_seconds.filter(|_| !job.spec.suspend)?;
    Some(Moment::from_seconds(
        job.start_time()?.seconds().saturating_add(seconds),
    ))
}

fn backoff_limit(job: &Job) -> i64 {
    job.spec.backoff_limit.unwrap_or(i64::from(i32::MAX))
}

/// Containers that are restarted in place count as failures do.
fn restarts_too_often(job: &Job, pods: &[Arc<Pod>]) -> bool {
    if job.template()["spec"].text("restartPolicy") != "OnFailure" {
        return false;
    }
    let running = pods
        .iter()
        .filter(|pod| matches!(pod.status.phase.as_str(), "Running" | "Pending"));
    let statuses = running.flat_map(|pod| {
        pod.status
            .init_container_statuses
            .iter()
            .chain(&pod.status.container_statuses)
    });
    let restarts: i64 = statuses.map(|status| status.restart_count).sum();
    restarts > 0 && restarts >= backoff_limit(job)
}

fn failure(reason: &str, message: impl Into<String>) -> Verdict {
    Verdict {
        succeeds: false,
        reason: reason.to_owned(),
        message: message.into(),
    }
}

fn success(reason: &str, message: impl Into<String>) -> Verdict {
    Verdict {
        succeeds: true,
        reason: reason.to_owned(),
        message: message.into(),
    }
}
