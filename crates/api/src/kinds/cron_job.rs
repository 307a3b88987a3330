//! CronJob: a job at every time its schedule names.

use super::job::default_job_spec;
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR, or_none};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static CRON_JOB: Resource = Resource::namespaced("batch", "v1", "CronJob", "cronjobs", "cronjob")
    .short(&["cj"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::STATUS])
    .with_rules(&CronJobRules);

struct CronJobRules;

impl Rules for CronJobRules {
    fn default(&self, cron_job: &mut Value) {
        let spec = cron_job.ensure("spec");
        spec.fill("concurrencyPolicy", "Allow");
        spec.fill("suspend", false);
        spec.fill("successfulJobsHistoryLimit", 3);
        spec.fill("failedJobsHistoryLimit", 1);
        default_job_spec(spec.ensure("jobTemplate").ensure("spec"));
    }

    fn prepare_create(&self, cron_job: &mut Value) {
        cron_job.set("status", json!({}));
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, cron_job: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&cron_job["spec"], &cron_job["status"]);
        let template = &spec["jobTemplate"]["spec"];
        let [containers, images] = print::containers(&template["template"]["spec"]);
        let suspend = match spec["suspend"].as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let last = match status.has("lastScheduleTime") {
            true => print::since(&status["lastScheduleTime"], now),
            false => "<none>".to_owned(),
        };
        vec![
            print::name(cron_job),
            spec.text("schedule").into(),
            or_none(spec.text("timeZone")),
            suspend.into(),
            status.list("active").len().into(),
            last.into(),
            print::age(cron_job, now),
            containers,
            images,
            print::selector(&template["selector"]),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Schedule", "When jobs start, as cron writes it."),
    print::text("Timezone", "The time zone of the schedule."),
    print::boolean("Suspend", "Whether no more jobs start."),
    print::integer("Active", "Jobs that run."),
    print::text("Last Schedule", "Time since a job was last started."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
