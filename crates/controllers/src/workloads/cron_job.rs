//! CronJobs: a job at every time that a schedule names.
//!
//! A job's name is made from its time, so that no time ever gets two jobs, whatever was written last.

use std::sync::Arc;
use std::time::Duration;

use api::cron::{Schedule, TimeZone};
use api::kinds::cron_job::CRON_JOB;
use api::kinds::job::JOB;
use api::{Fields, ObjectMeta, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, EventType, Key, ObjectReference, Propagation};
use serde::Deserialize;
use serde_json::json;

use crate::claim::{self, BY_CONTROLLER};
use crate::driver::{Attempt, Reconcile, Row, Setup, controller_key};
use crate::model::{created, with_metadata};
use crate::owner::controller_reference;
use crate::plan::{Action, Announce, Create, Delete, Event, Patch, Plan};
use crate::status;
use crate::workloads::job::model::Job;

pub const ROW: Row = Row {
    name: "cronjob",
    account: "cronjob-controller",
    queue: "cronjob",
    workers: 5,
    start,
};

const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// How long after a scheduled time its plan is made, so that clocks that differ a little agree that it has come.
const LEEWAY: Duration = Duration::from_millis(100);

struct Controller {
    cron_jobs: Arc<Cache<CronJob>>,
    jobs: Arc<Cache<Job>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CronJob {
    metadata: ObjectMeta,
    spec: CronJobSpec,
    status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CronJobSpec {
    schedule: String,
    time_zone: Option<String>,
    starting_deadline_seconds: Option<i64>,
    concurrency_policy: String,
    suspend: bool,
    job_template: Value,
    successful_jobs_history_limit: Option<usize>,
    failed_jobs_history_limit: Option<usize>,
}

with_metadata!(CronJob);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let cron_jobs = setup.cache::<CronJob>(&CRON_JOB);
    let jobs = setup.cache::<Job>(&JOB);
    claim::add_indexes(&jobs);
    setup.watch_own(&cron_jobs);
    setup.watch(&jobs, |job| controller_key(&job.metadata, CRON_JOB.kind));
    Box::new(Controller { cron_jobs, jobs })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(cron_job) = self.cron_jobs.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let jobs = self.jobs.by(BY_CONTROLLER, &cron_job.metadata.uid);
        Ok(plan(&cron_job, &jobs, attempt.now))
    }
}

fn plan(cron_job: &CronJob, jobs: &[Arc<Job>], now: Moment) -> Plan {
    let mut plan = Plan::default();
    remove_old(cron_job, jobs, &mut plan);
    if !cron_job.metadata.is_deleting() {
        start_job(cron_job, jobs, now, &mut plan);
    }
    let next = next_status(cron_job, jobs, &mut plan);
    plan.status = status::patch(&CRON_JOB, &cron_job.metadata, &cron_job.status, next);
    plan
}

/// Of the jobs that have ended only the latest are kept.
fn remove_old(cron_job: &CronJob, jobs: &[Arc<Job>], plan: &mut Plan) {
    let limits = [
        ("Complete", cron_job.spec.successful_jobs_history_limit),
        ("Failed", cron_job.spec.failed_jobs_history_limit),
    ];
    for (end, limit) in limits {
        let Some(limit) = limit else { continue };
        let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(|job| job.holds(end)).collect();
        ended.sort_by_key(|job| (job.start_time(), job.metadata.name.clone()));
        let excess = ended.len().saturating_sub(limit);
        let going = ended[..excess].iter().filter(|job| !job.metadata.is_deleting());
        plan.actions.extend(going.map(|job| delete(cron_job, job)));
    }
}

/// Starts the job of the latest time that has come, and asks to be planned again when the next one does.
fn start_job(cron_job: &CronJob, jobs: &[Arc<Job>], now: Moment, plan: &mut Plan) {
    let spec = &cron_job.spec;
    let zone_name = spec.time_zone.as_deref().unwrap_or_default();
    let zone = match TimeZone::named(zone_name) {
        Ok(zone) => zone,
        Err(error) => {
            let message = format!("invalid timeZone: {zone_name:?}: {error}");
            return warn(cron_job, "UnknownTimeZone", message, plan);
        }
    };
    if spec.suspend {
        return;
    }
    let schedule = match Schedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(error) => {
            let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
            return warn(cron_job, "UnparseableSchedule", message, plan);
        }
    };
    let last = Moment::parse(cron_job.status.text("lastScheduleTime"));
    let since = last.unwrap_or_else(|| created(&cron_job.metadata)).seconds();
    let earliest = spec
        .starting_deadline_seconds
        .map_or(since, |seconds| since.max(now.seconds() - seconds));
    let latest = schedule.latest(earliest, now.seconds(), &zone);
    let next = schedule.next(latest.map_or(since, |latest| latest.at), &zone);
    // A time that has passed and is too old to be started is not waited for.
    let next = next
        .filter(|next| *next > now.seconds())
        .or_else(|| schedule.next(now.seconds(), &zone));
    match next {
        Some(next) => plan.again_after(Moment::from_seconds(next).since(now) + LEEWAY),
        None if latest.is_none() => {
            // Such as the 31st of February; the cause is told in upstream's words.
            let cause = "time difference between two schedules is less than 1 second";
            let message = format!("invalid schedule: {} : {cause}", spec.schedule);
            return warn(cron_job, "InvalidSchedule", message, plan);
        }
        None => {}
    }
    let Some(latest) = latest else { return };
    if latest.is_many() {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        warn(cron_job, "TooManyMissedTimes", message.to_owned(), plan);
    }
    run(cron_job, jobs, latest.at, &zone, plan);
}

fn run(cron_job: &CronJob, jobs: &[Arc<Job>], at: i64, zone: &TimeZone, plan: &mut Plan) {
    let name = format!("{}-{}", cron_job.metadata.name, at / 60);
    let is_started = jobs.iter().any(|job| job.metadata.name == name);
    let active = || jobs.iter().filter(|job| !job.is_finished());
    if !is_started {
        match cron_job.spec.concurrency_policy.as_str() {
            "Forbid" if active().next().is_some() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                return tell(
                    cron_job,
                    EventType::Normal,
                    "JobAlreadyActive",
                    message.to_owned(),
                    plan,
                );
            }
            "Replace" => {
                let running = active().filter(|job| !job.metadata.is_deleting());
                plan.actions.extend(running.map(|job| delete(cron_job, job)));
            }
            _ => {}
        }
        plan.actions.push(create(cron_job, &name, at, zone));
    }
    // Written only once the job is there, or its time would be lost when it could not be created.
    let body = json!({"status": {"lastScheduleTime": Moment::from_seconds(at).to_time()}});
    let mut patch = Patch::new(&CRON_JOB, &cron_job.metadata, body)
        .at_revision(&cron_job.metadata)
        .by_update();
    patch.subresource = "status";
    plan.actions.push(Action::Patch(patch));
}

fn create(cron_job: &CronJob, name: &str, at: i64, zone: &TimeZone) -> Action {
    let template = &cron_job.spec.job_template;
    let mut metadata = json!({
        "name": name,
        "ownerReferences": [controller_reference(&CRON_JOB, &cron_job.metadata)],
    });
    for field in ["labels", "annotations"] {
        if template["metadata"].has(field) {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    metadata.ensure("annotations").set(SCHEDULED_AT, zone.format(at));
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]});
    let mut create = Create::new(&JOB, &cron_job.metadata.namespace, job);
    create.exists_is_fine = true;
    create.announce = Some(Announce {
        about: ObjectReference::new(&CRON_JOB, &cron_job.metadata),
        success: ("SuccessfulCreate", "Created job ".to_owned()),
        failure: Some(("FailedCreate", "Error creating job: ".into())),
    });
    Action::Create(create)
}

fn delete(cron_job: &CronJob, job: &Job) -> Action {
    let mut delete = Delete::new(&JOB, &job.metadata);
    delete.propagation = Some(Propagation::Background);
    delete.announce = Some(Announce {
        about: ObjectReference::new(&CRON_JOB, &cron_job.metadata),
        success: ("SuccessfulDelete", "Deleted job ".to_owned()),
        failure: Some(("FailedDelete", "Deleted job: ".into())),
    });
    Action::Delete(delete)
}

/// The jobs that run, in the order in which they were first seen, and the last success.
fn next_status(cron_job: &CronJob, jobs: &[Arc<Job>], plan: &mut Plan) -> Value {
    let mut active = Vec::new();
    for reference in cron_job.status.list("active") {
        let (uid, name) = (reference.text("uid"), reference.text("name"));
        match jobs.iter().find(|job| job.metadata.uid == uid) {
            Some(job) if job.is_finished() => {
                let end = if job.holds("Complete") { "Complete" } else { "Failed" };
                let message = format!("Saw completed job: {name}, condition: {end}");
                tell(cron_job, EventType::Normal, "SawCompletedJob", message, plan);
            }
            Some(_) => active.push(reference.clone()),
            None => {
                let message = format!("Active job went missing: {name}");
                tell(cron_job, EventType::Normal, "MissingJob", message, plan);
            }
        }
    }
    let known = |job: &Job, active: &[Value]| active.iter().any(|one| one.text("uid") == job.metadata.uid);
    for job in jobs.iter().filter(|job| !job.is_finished()) {
        if known(job, &active) {
            continue;
        }
        if !job.metadata.annotations.contains_key(SCHEDULED_AT) {
            let message = format!(
                "Saw a job that the controller did not create or forgot: {}",
                job.metadata.name
            );
            warn(cron_job, "UnexpectedJob", message, plan);
            continue;
        }
        let metadata = &job.metadata;
        active.push(json!({
            "apiVersion": "batch/v1", "kind": "Job", "namespace": metadata.namespace, "name": metadata.name,
            "uid": metadata.uid, "resourceVersion": metadata.resource_version,
        }));
    }
    let ends = jobs
        .iter()
        .filter(|job| job.holds("Complete"))
        .map(|job| job.status.text("completionTime"));
    let last = ends
        .chain([cron_job.status.text("lastSuccessfulTime")])
        .max_by_key(|time| Moment::parse(time));
    let last = last.filter(|time| !time.is_empty()).map_or(Value::Null, Value::from);
    json!({"active": active, "lastSuccessfulTime": last})
}

fn warn(cron_job: &CronJob, reason: &'static str, message: String, plan: &mut Plan) {
    tell(cron_job, EventType::Warning, reason, message, plan);
}

fn tell(cron_job: &CronJob, kind: EventType, reason: &'static str, message: String, plan: &mut Plan) {
    plan.actions.push(Action::Event(Event {
        about: ObjectReference::new(&CRON_JOB, &cron_job.metadata),
        kind,
        reason,
        message,
    }));
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object, objects};

    fn check(spec: &str, status: &str, jobs: &str, expected: Expect) {
        let cron_job = object(&format!(
            "metadata: {{name: tick, namespace: default, uid: u, resourceVersion: '7', creationTimestamp: '2026-01-01T11:00:30Z'}}
spec: {{jobTemplate: {{spec: {{template: {{}}}}}}, {spec}}}
status: {status}"
        ));
        expected.assert_eq(&plan(&cron_job, &objects(jobs), noon()).to_string());
    }

    fn job(minute: i64, status: &str) -> String {
        let minutes = noon().seconds() / 60 - 60 + minute;
        format!(
            "
---
metadata: {{name: tick-{minutes}, namespace: default, uid: job-{minute}, resourceVersion: '5', annotations: {{{SCHEDULED_AT}: x}}}}
status: {status}
"
        )
    }

    #[test]
    fn the_latest_time_that_has_come_gets_a_job() {
        check(
            "schedule: '*/30 * * * *', timeZone: Europe/Berlin, concurrencyPolicy: Allow",
            "{}",
            "",
            expect![[r#"
                create jobs in default: {"apiVersion":"batch/v1","kind":"Job","metadata":{"annotations":{"batch.kubernetes.io/cronjob-scheduled-timestamp":"2026-01-01T13:00:00+01:00"},"name":"tick-29454480","ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"CronJob","name":"tick","uid":"u"}]},"spec":{"template":{}}}
                patch cronjobs default/tick/status: {"metadata":{"resourceVersion":"7"},"status":{"lastScheduleTime":"2026-01-01T12:00:00Z"}}
                again after 1800.1s
            "#]],
        );
        check("schedule: '@hourly', suspend: true", "{}", "", expect![""]);
        check(
            "schedule: '@hourly'",
            "{lastScheduleTime: '2026-01-01T12:00:00Z'}",
            "",
            expect![[r#"
                again after 3600.1s
            "#]],
        );
        check(
            "schedule: '15 11 * * *', startingDeadlineSeconds: 60",
            "{}",
            "",
            expect![[r#"
                again after 83700.1s
            "#]],
        );
    }

    #[test]
    fn a_schedule_that_never_comes_is_told() {
        check(
            "schedule: '0 0 31 2 *'",
            "{}",
            "",
            expect![[r#"
                event Warning InvalidSchedule: invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second
            "#]],
        );
    }

    #[test]
    fn jobs_that_still_run_are_waited_for_or_replaced() {
        let status = "{lastScheduleTime: '2026-01-01T11:30:00Z', active: [{uid: job-30, name: tick-29454450}]}";
        check(
            "schedule: '*/30 * * * *', concurrencyPolicy: Forbid",
            status,
            &job(30, "{}"),
            expect![[r#"
                event Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid
                again after 1800.1s
            "#]],
        );
        check(
            "schedule: '*/30 * * * *', concurrencyPolicy: Replace",
            status,
            &job(30, "{}"),
            expect![[r#"
                delete jobs default/tick-29454450 (Background)
                create jobs in default: {"apiVersion":"batch/v1","kind":"Job","metadata":{"annotations":{"batch.kubernetes.io/cronjob-scheduled-timestamp":"2026-01-01T12:00:00Z"},"name":"tick-29454480","ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"CronJob","name":"tick","uid":"u"}]},"spec":{"template":{}}}
                patch cronjobs default/tick/status: {"metadata":{"resourceVersion":"7"},"status":{"lastScheduleTime":"2026-01-01T12:00:00Z"}}
                again after 1800.1s
            "#]],
        );
    }

    #[test]
    fn history_and_status_follow_the_jobs() {
        let ended = |at: &str| {
            format!("{{startTime: '{at}', completionTime: '{at}', conditions: [{{type: Complete, status: 'True'}}]}}")
        };
        let jobs = job(0, &ended("2026-01-01T11:01:00Z")) + &job(30, &ended("2026-01-01T11:31:00Z")) + &job(60, "{}");
        check(
            "schedule: '*/30 * * * *', successfulJobsHistoryLimit: 1",
            "{lastScheduleTime: '2026-01-01T12:00:00Z', active: [{uid: job-30, name: tick-29454450}]}",
            &jobs,
            expect![[r#"
                delete jobs default/tick-29454420 (Background)
                event Normal SawCompletedJob: Saw completed job: tick-29454450, condition: Complete
                patch cronjobs default/tick/status: {"metadata":{"resourceVersion":"7"},"status":{"active":[{"apiVersion":"batch/v1","kind":"Job","name":"tick-29454480","namespace":"default","resourceVersion":"5","uid":"job-60"}],"lastSuccessfulTime":"2026-01-01T11:31:00Z"}}
                again after 1800.1s
            "#]],
        );
    }
}
