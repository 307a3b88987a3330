//! CronJob: a job at every time its schedule names.

use super::job::default_job_spec;
use super::job::validate_job_spec;
use crate::cron::{Schedule, TimeZone};
use crate::pod_spec::drop_disabled_in;
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR, or_none};
use crate::warnings;
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};
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
        drop_disabled_in(cron_job, &Value::Null, TEMPLATE);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled_in(new, old, TEMPLATE);
    }

    fn validate(&self, cron_job: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&cron_job["spec"], Path::new("spec"));
        if problems.needs(spec, &path, "schedule") {
            validate_schedule(spec, &path, &mut problems);
        }
        validate_time_zone(spec, &path, &mut problems);
        for field in [
            "startingDeadlineSeconds",
            "successfulJobsHistoryLimit",
            "failedJobsHistoryLimit",
        ] {
            problems.not_negative(spec, &path, field);
        }
        problems.one_of(spec, &path, "concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
        let template_path = path.child("jobTemplate").child("spec");
        let template = &spec["jobTemplate"]["spec"];
        validate_job_spec(template, &template_path, &mut problems);
        if template.flag("manualSelector") {
            let path = template_path.child("manualSelector");
            problems.extend([FieldError::not_supported(&path, true, &["nil", "false"])]);
        }
        if template.has("selector") {
            let detail = "`selector` will be auto-generated";
            problems.invalid(&template_path, "selector", template["selector"].clone(), detail);
        }
        problems.into_vec()
    }

    /// The names of its jobs are longer by a time.
    fn validate_create(&self, cron_job: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let name = cron_job["metadata"].text("name");
        if name.len() > NAME_BYTES {
            let detail = format!("must be no more than {NAME_BYTES} characters");
            problems.invalid(&Path::new("metadata"), "name", name, detail);
        }
        problems.into_vec()
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

    fn warnings(&self, job: &Value) -> Vec<String> {
        warnings::of_template(job, &["spec", "jobTemplate", "spec", "template"])
    }
}

const TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];
const NAME_BYTES: usize = 52;

fn validate_schedule(spec: &Value, path: &Path, problems: &mut Problems) {
    let schedule = spec.text("schedule");
    if let Err(error) = Schedule::parse(schedule) {
        problems.invalid(path, "schedule", schedule, error);
    }
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        problems.invalid(path, "schedule", schedule, detail);
    }
}

fn validate_time_zone(spec: &Value, path: &Path, problems: &mut Problems) {
    let Some(name) = spec["timeZone"].as_str() else { return };
    if name.is_empty() {
        return problems.invalid(path, "timeZone", name, "timeZone must be nil or non-empty string");
    }
    let usual = |letter: char| letter.is_ascii_alphanumeric() || ".-_+".contains(letter);
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.starts_with('-') && part.len() <= 14 && part.chars().all(usual)
    };
    if !name.split('/').all(is_part) {
        problems.invalid(path, "timeZone", name, format!("unknown time zone {name}"));
    }
    if name.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        problems.invalid(path, "timeZone", name, detail);
    }
    if let Err(error) = TimeZone::named(name)
        && !name.eq_ignore_ascii_case("local")
    {
        problems.invalid(path, "timeZone", name, error);
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(spec: &str, expected: Expect) {
        let mut object: Value = serde_json::from_str(&format!("{{\"spec\": {spec}}}")).unwrap();
        let pod = json!({"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Never"});
        object["spec"]["jobTemplate"] = json!({"spec": {"template": {"spec": pod}}});
        CRON_JOB.rules.default(&mut object);
        let problems: Vec<String> = CRON_JOB
            .rules
            .validate(&object)
            .iter()
            .map(ToString::to_string)
            .collect();
        expected.assert_eq(&problems.join("\n"));
    }

    #[test]
    fn schedules_and_time_zones_must_be_known() {
        check(
            r#"{"schedule": "0 * * * mon", "timeZone": "Europe/Berlin"}"#,
            expect![""],
        );
        check(
            r#"{"schedule": "61 * * * *", "timeZone": "Middle/Earth"}"#,
            expect![[r#"
                spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61
                spec.timeZone: Invalid value: "Middle/Earth": unknown time zone Middle/Earth"#]],
        );
        check(
            r#"{"schedule": "TZ=UTC 0 * * * *"}"#,
            expect![[
                r#"spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"#
            ]],
        );
    }
}
