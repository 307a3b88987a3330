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
    let desired = job.at("spec.completions").as_i64().unwrap_or(1);
    let succeeded = job.int("status.succeeded");
    if job.condition_is("Complete", "True").is_some() {
        return State::Healthy(format!("it is complete: {succeeded} of {desired} completions."));
    }
    if job.condition_is("Failed", "True").is_some() {
        return State::Unhealthy("it failed.".to_owned());
    }
    if job.yes("spec.suspend") {
        return State::Unhealthy("it is suspended.".to_owned());
    }
    let active = job.int("status.active");
    let failed = job.int("status.failed");
    let numbers = format!("{succeeded} of {desired} completions, {active} active, {failed} failed.");
    match active > 0 && failed == 0 && job.int("status.ready") == active {
        true => State::Healthy(numbers),
        false => State::Unhealthy(numbers),
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
                "Its pods failed {}, more than spec.backoffLimit {limit} allows.",
                times(failures)
            ),
        )
        .next("Fix the cause of the failures, then delete the Job and create it again."),
        "DeadlineExceeded" => Finding::broken(
            "deadline-exceeded",
            format!(
                "It ran longer than spec.activeDeadlineSeconds {}.",
                job.int("spec.activeDeadlineSeconds")
            ),
        )
        .next("Raise activeDeadlineSeconds or reduce the work, then delete the Job and create it again."),
        "PodFailurePolicy" => Finding::broken("pod-failure-policy", "A rule of spec.podFailurePolicy failed the Job.")
            .detail(condition.str("message")),
        "FailedIndexes" | "MaxFailedIndexesExceeded" => Finding::broken(
            "failed-indexes",
            format!("Indexes {} failed.", job.str("status.failedIndexes")),
        )
        .next("Inspect the pods of these indexes."),
        reason => {
            Finding::broken("job-failed", format!("It failed with reason {reason}.")).detail(condition.str("message"))
        }
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
        Finding::waiting("suspended", "spec.suspend is true, so no pods are created.").next(format!(
            "Resume: kubectl -n {} patch job {} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
            job.namespace(),
            job.name()
        )),
    ]
}
