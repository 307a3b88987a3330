//! Job: pods that run to their end.

use crate::pod_spec::default_template;
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static JOB: Resource = Resource::namespaced("batch", "v1", "Job", "jobs", "job")
    .in_categories(&["all"])
    .with_subresources(&[Subresource::STATUS])
    .with_rules(&JobRules);

struct JobRules;

impl Rules for JobRules {
    fn default(&self, job: &mut Value) {
        let labels = job["spec"]["template"]["metadata"]["labels"].clone();
        default_job_spec(job.ensure("spec"));
        let metadata = job.ensure("metadata");
        if labels.is_object() && metadata.entries("labels").next().is_none() {
            metadata.set("labels", labels);
        }
        let spec = job.ensure("spec");
        if !spec.has("completions") && !spec.has("parallelism") {
            spec.set("completions", 1);
        }
        spec.fill("parallelism", 1);
        let per_index = spec.has("backoffLimitPerIndex");
        spec.fill(
            "backoffLimit",
            if per_index { i64::from(i32::MAX) } else { BACKOFF_LIMIT },
        );
        spec.fill("completionMode", "NonIndexed");
        spec.fill("suspend", false);
        let replacement = if spec.has("podFailurePolicy") {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        spec.fill("podReplacementPolicy", replacement);
        spec.fill("manualSelector", false);
    }

    fn prepare_create(&self, job: &mut Value) {
        job.set("status", json!({}));
        generate_selector(job);
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn field(&self, job: &Value, path: &str) -> Option<String> {
        (path == "status.successful").then(|| job["status"].number("succeeded").to_string())
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, job: &Value, now: i64) -> Vec<Value> {
        let spec = &job["spec"];
        let [containers, images] = print::containers(&spec["template"]["spec"]);
        vec![
            print::name(job),
            state(job).into(),
            completions(job).into(),
            duration(&job["status"], now).into(),
            print::age(job, now),
            containers,
            images,
            print::selector(&spec["selector"]),
        ]
    }
}

/// How often pods may fail.
const BACKOFF_LIMIT: i64 = 6;
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// The defaults that also hold in a CronJob's template.
pub(super) fn default_job_spec(spec: &mut Value) {
    default_template(spec);
    if let Some(policy) = spec.child_mut("podFailurePolicy") {
        for rule in policy.list_mut("rules") {
            for pattern in rule.list_mut("onPodConditions") {
                pattern.fill("status", "True");
            }
        }
    }
}

/// Marks the pods with the job's uid, which the registry has set, so that no other job takes them for its own.
fn generate_selector(job: &mut Value) {
    if job["spec"].flag("manualSelector") {
        return;
    }
    let uid = job["metadata"].text("uid").to_owned();
    let name = job["metadata"].text("name").to_owned();
    let spec = job.ensure("spec");
    let labels = spec.ensure("template").ensure("metadata").ensure("labels");
    for label in NAME_LABELS {
        labels.set(label, name.as_str());
    }
    for label in UID_LABELS {
        labels.set(label, uid.as_str());
    }
    spec.ensure("selector").ensure("matchLabels").fill(UID_LABELS[0], uid);
}

fn state(job: &Value) -> &'static str {
    let holds = |name: &str| {
        let conditions = job["status"].list("conditions");
        let condition = conditions.iter().find(|condition| condition.text("type") == name);
        condition.is_some_and(|condition| condition.text("status") == "True")
    };
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if job["metadata"].has("deletionTimestamp") => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Value) -> String {
    let succeeded = job["status"].number("succeeded");
    match (job["spec"]["completions"].as_i64(), job["spec"].number("parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(status: &Value, now: i64) -> String {
    match (
        print::seconds(&status["startTime"]),
        print::seconds(&status["completionTime"]),
    ) {
        (None, _) => String::new(),
        (Some(start), end) => print::duration(end.unwrap_or(now) - start),
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Status", "Whether the job runs, or how it ended."),
    print::text("Completions", "Pods that succeeded, of all that must."),
    print::text("Duration", "How long the job has run, or took."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_job_runs_once_and_knows_its_pods_by_its_uid() {
        let mut job = json!({"metadata": {"name": "once"}, "spec": {"template": {"spec": {"restartPolicy": "Never"}}}});
        JOB.rules.default(&mut job);
        job["metadata"]["uid"] = "1".into();
        JOB.rules.prepare_create(&mut job);
        job["spec"]["template"].remove("spec");
        expect![[r#"{"backoffLimit":6,"completionMode":"NonIndexed","completions":1,"manualSelector":false,"parallelism":1,"podReplacementPolicy":"TerminatingOrFailed","selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"1"}},"suspend":false,"template":{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"1","batch.kubernetes.io/job-name":"once","controller-uid":"1","job-name":"once"}}}}"#]]
            .assert_eq(&job["spec"].to_string());
    }
}
