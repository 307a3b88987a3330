//! CronJobs.

use api::Value;
use api::kinds::cron_job::CRON_JOB;
use api::kinds::job::JOB;

use crate::why::facts::Facts;
use crate::why::finding::{Finding, Reference};
use crate::why::look::{self, Look};
use crate::why::table::Kind;
use crate::why::{State, refusal};

pub static ROW: Kind = Kind {
    resource: &CRON_JOB,
    reads: &[&JOB],
    state,
    checks: &[is_suspended, cannot_be_scheduled, last_is_still_active, cannot_create],
};

fn state(facts: &Facts, cron_job: &Value) -> State {
    if cron_job.yes("spec.suspend") {
        return State::Unhealthy("it is suspended.".to_owned());
    }
    let jobs = facts.owned_by(cron_job).into_iter().map(|(_, job)| job);
    let last = jobs.max_by_key(|job| job.str("metadata.creationTimestamp").to_owned());
    match last {
        Some(job) if job.condition_is("Failed", "True").is_some() => {
            State::Unhealthy(format!("its most recent Job, {}, failed.", job.name()))
        }
        _ => match cron_job.moment("status.lastScheduleTime") {
            Some(time) => State::Healthy(format!(
                "it was last scheduled {} ago.",
                look::duration(facts.seconds_since(Some(time)))
            )),
            None if has_trouble(facts, cron_job) => State::Unhealthy("it has never been scheduled.".to_owned()),
            None => State::Healthy("it has not reached its first scheduled time.".to_owned()),
        },
    }
}

fn has_trouble(facts: &Facts, cron_job: &Value) -> bool {
    facts
        .events(&CRON_JOB, cron_job)
        .any(|event| event.str("type") == "Warning")
}

fn is_suspended(_: &Facts, cron_job: &Value) -> Vec<Finding> {
    if !cron_job.yes("spec.suspend") {
        return Vec::new();
    }
    vec![
        Finding::waiting("suspended", "spec.suspend is true, so no new Jobs are created.").next(format!(
            "Resume: kubectl -n {} patch cronjob {} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
            cron_job.namespace(),
            cron_job.name()
        )),
    ]
}

fn cannot_be_scheduled(facts: &Facts, cron_job: &Value) -> Vec<Finding> {
    let reasons = [
        "UnparseableSchedule",
        "UnknownTimeZone",
        "UnparsableSchedule",
        "TooManyMissedTimes",
        "InvalidSchedule",
    ];
    let event = facts
        .events(&CRON_JOB, cron_job)
        .find(|event| reasons.contains(&event.str("reason")));
    let Some(event) = event else {
        return Vec::new();
    };
    let finding = match event.str("reason") {
        "UnknownTimeZone" => Finding::broken(
            "unknown-time-zone",
            format!("spec.timeZone \"{}\" is unknown.", cron_job.str("spec.timeZone")),
        )
        .next("Set spec.timeZone to an IANA name, such as Europe/Berlin."),
        "TooManyMissedTimes" => Finding::broken(
            "missed-times",
            "More than 100 scheduled times were missed, so the controller no longer catches up.",
        )
        .next("Set spec.startingDeadlineSeconds, and check the clock of the control plane."),
        _ => Finding::broken(
            "schedule-invalid",
            format!("spec.schedule \"{}\" is invalid.", cron_job.str("spec.schedule")),
        )
        .next("Correct spec.schedule; the format is: minute hour day-of-month month day-of-week."),
    };
    vec![finding.detail(event.str("message"))]
}

fn last_is_still_active(facts: &Facts, cron_job: &Value) -> Vec<Finding> {
    let active = cron_job.items("status.active");
    let Some(job) = active
        .first()
        .filter(|_| cron_job.str("spec.concurrencyPolicy") == "Forbid")
    else {
        return Vec::new();
    };
    if facts.event(&CRON_JOB, cron_job, "JobAlreadyActive").is_none() {
        return Vec::new();
    }
    vec![
        Finding::waiting(
            "job-still-active",
            format!(
                "Job {} is still running, and concurrencyPolicy Forbid does not allow another one at the same time.",
                job.str("name")
            ),
        )
        .because_of(Reference::new(&JOB, cron_job.namespace(), job.str("name"))),
    ]
}

fn cannot_create(facts: &Facts, cron_job: &Value) -> Vec<Finding> {
    let event = facts.event(&CRON_JOB, cron_job, "FailedCreate");
    event
        .map(|event| refusal::explain(event.str("message"), cron_job.namespace()))
        .into_iter()
        .collect()
}
