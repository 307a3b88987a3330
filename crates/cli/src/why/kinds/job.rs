//! Jobs.

use api::Value;
use api::kinds::job::JOB;
use api::kinds::pod::POD;
use api::kinds::resource_quota::RESOURCE_QUOTA;

use super::workload;
use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::{self, Look};
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &JOB,
    reads: &[&POD, &RESOURCE_QUOTA],
    state,
    checks: &[
        has_failed,
        is_suspended,
        |facts, job| {
            let has_ended = job
                .condition_is("Failed", "True")
                .or(job.condition_is("Complete", "True"))
                .is_some();
            let is_short = !has_ended && job.int("status.active") == 0 && !job.yes("spec.suspend");
            workload::refused(facts, &JOB, job, is_short)
        },
        |facts, job| workload::held_by_finalizers(facts, job, 60),
    ],
};

fn state(_: &Facts, job: &Value) -> State {
    let wished = job.at("spec.completions").as_i64().unwrap_or(1);
    let succeeded = job.int("status.succeeded");
    if job.condition_is("Complete", "True").is_some() {
        return State::Well(format!("it is complete, {succeeded} of {wished} succeeded."));
    }
    if job.condition_is("Failed", "True").is_some() {
        return State::Unwell("it has failed.".to_owned());
    }
    if job.yes("spec.suspend") {
        return State::Unwell("it is suspended.".to_owned());
    }
    let active = job.int("status.active");
    let failed = job.int("status.failed");
    let numbers = format!("{succeeded} of {wished} succeeded, {active} run, {failed} failed.");
    match active > 0 && failed == 0 && job.int("status.ready") == active {
        true => State::Well(numbers),
        false => State::Unwell(numbers),
    }
}

fn has_failed(_: &Facts, job: &Value) -> Vec<Finding> {
    let failed = job
        .condition_is("Failed", "True")
        .or_else(|| job.condition_is("FailureTarget", "True"));
    let Some(condition) = failed else {
        return Vec::new();
    };
    let failures = job.int("status.failed");
    let limit = job.at("spec.backoffLimit").as_i64().unwrap_or(6);
    let finding = match condition.str("reason") {
        "BackoffLimitExceeded" => Finding::broken(
            "backoff-limit",
            format!(
                "Its pods failed {}, which is more than spec.backoffLimit {limit} allows.",
                times(failures)
            ),
        )
        .next("Mend what makes the pods fail, then delete the Job and make it anew."),
        "DeadlineExceeded" => Finding::broken(
            "deadline-exceeded",
            format!(
                "It took longer than spec.activeDeadlineSeconds {}.",
                job.int("spec.activeDeadlineSeconds")
            ),
        )
        .next("Raise activeDeadlineSeconds, or make the work smaller; then make the Job anew."),
        "PodFailurePolicy" => Finding::broken("pod-failure-policy", "A rule of its podFailurePolicy has ended it.")
            .detail(condition.str("message")),
        "FailedIndexes" | "MaxFailedIndexesExceeded" => Finding::broken(
            "failed-indexes",
            format!("Its indexes {} have failed.", job.str("status.failedIndexes")),
        )
        .next("Look at the pods of those indexes."),
        reason => Finding::broken("job-failed", format!("It failed with the reason {reason}."))
            .detail(condition.str("message")),
    };
    vec![finding]
}

fn times(number: i64) -> String {
    look::count(usize::try_from(number).unwrap_or_default(), "time")
}

fn is_suspended(_: &Facts, job: &Value) -> Vec<Finding> {
    if !job.yes("spec.suspend") {
        return Vec::new();
    }
    vec![
        Finding::waiting("suspended", "It is suspended (spec.suspend), so it has no pods.").next(format!(
            "Go on: kubectl -n {} patch job {} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
            job.namespace(),
            job.name()
        )),
    ]
}
