//! Finished jobs with a time to live are deleted when it is over, and their pods with them.

use std::sync::Arc;

use api::Fields;
use api::kinds::job::JOB;
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Key, Propagation};

use crate::conditions;
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::plan::{Action, Delete, Plan};
use crate::workloads::job::model::Job;

pub const ROW: Row = Row {
    name: "ttl-after-finished",
    account: "ttl-after-finished-controller",
    queue: "ttl_jobs_to_delete",
    workers: 5,
    start,
};

struct Controller {
    jobs: Arc<Cache<Job>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let jobs = setup.cache::<Job>(&JOB);
    setup.watch_own(&jobs);
    Box::new(Controller { jobs })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let job = self.jobs.get_key(key.as_str());
        Ok(job.map_or_else(Plan::nothing, |job| plan(&job, attempt.now)))
    }
}

fn plan(job: &Job, now: Moment) -> Plan {
    let mut plan = Plan::default();
    let Some(seconds) = job.spec.ttl_seconds_after_finished else {
        return plan;
    };
    let Some(finished) = finished(job).filter(|_| !job.metadata.is_deleting()) else {
        return plan;
    };
    let expires = Moment::from_seconds(finished.seconds().saturating_add(seconds));
    if expires > now {
        plan.again_after(expires.since(now));
        return plan;
    }
    let mut delete = Delete::new(&JOB, &job.metadata);
    // A job whose time to live was made longer meanwhile is looked at again.
    delete.only_at = job.metadata.resource_version.clone();
    delete.propagation = Some(Propagation::Foreground);
    plan.actions.push(Action::Delete(delete));
    plan
}

fn finished(job: &Job) -> Option<Moment> {
    let all = job.status.list("conditions");
    let end = ["Complete", "Failed"].iter().find(|kind| job.holds(kind))?;
    Moment::parse(conditions::find(all, end)?.text("lastTransitionTime"))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object};

    fn check(seconds: i64, conditions: &str, expected: Expect) {
        let job = object(&format!(
            "metadata: {{name: once, namespace: default, resourceVersion: '3'}}
spec: {{ttlSecondsAfterFinished: {seconds}}}
status: {{conditions: {conditions}}}"
        ));
        expected.assert_eq(&plan(&job, noon()).to_string());
    }

    #[test]
    fn a_job_goes_when_its_time_is_over() {
        let ended = "[{type: Failed, status: 'True', lastTransitionTime: '2026-01-01T11:59:00Z'}]";
        check(
            60,
            ended,
            expect![[r#"
            delete jobs default/once (Foreground)
        "#]],
        );
        check(
            100,
            ended,
            expect![[r#"
            again after 40s
        "#]],
        );
        check(0, "[]", expect![""]);
    }
}
