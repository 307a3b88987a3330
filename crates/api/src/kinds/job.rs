//! Job: pods that run to their end.

mod policy;
mod status;
#[cfg(test)]
mod tests;
mod update;

use crate::pod_spec::{default_template, drop_disabled_in, validate_template};
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR};
use crate::selector::Selector;
use crate::warnings;
use crate::workload::validate_selected;
use crate::{
    Column, FieldError, Fields, Generation, LabelSelector, Path, Problems, Resource, Rules, Subresource, Value, names,
    validate_label_selector,
};
use serde_json::json;

pub static JOB: Resource = Resource::namespaced("batch", "v1", "Job", "jobs", "job")
    .in_categories(&["all"])
    .with_subresources(&[Subresource::STATUS])
    .converting_field_labels()
    .orphaning_dependents()
    .warning_on_deletion(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
         set propagationPolicy=Orphan to suppress this warning",
    )
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
        spec.fill_absent("completionMode", "NonIndexed");
        spec.fill("suspend", false);
        let replacement = if spec.has("podFailurePolicy") {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        spec.fill_absent("podReplacementPolicy", replacement);
        spec.fill("manualSelector", false);
    }

    fn prepare_create(&self, job: &mut Value) {
        job.set("status", json!({}));
        generate_selector(job);
        drop_disabled_in(job, &Value::Null, &["spec", "template"]);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled_in(new, old, &["spec", "template"]);
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&job["spec"], Path::new("spec"));
        validate_job_spec(spec, &path, &mut problems);
        if spec["selector"].is_object() {
            problems.extend(validate_label_selector(&spec["selector"], &path.child("selector")));
            let parsed: LabelSelector = serde_json::from_value(spec["selector"].clone()).unwrap_or_default();
            validate_selected(spec, &Selector::from(&parsed), &path, &mut problems);
        } else {
            problems.required(&path, "selector", "");
            // What selects nothing does not select the job's own pods either.
            let nothing = spec["template"]["metadata"]["labels"].clone();
            let place = path.child("template").child("metadata");
            problems.invalid(&place, "labels", nothing, "`selector` does not match template `labels`");
        }
        validate_generated(job, &path, &mut problems);
        policy::validate_host_names(job, &mut problems);
        problems.into_vec()
    }

    /// A user who does not ask for it may not choose the selector.
    fn validate_create(&self, job: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let selector = &job["spec"]["selector"];
        let uid = job["metadata"].text("uid");
        let own = json!({"matchLabels": {(UID_LABELS[0]): uid}});
        if !job["spec"].flag("manualSelector") && *selector != own {
            let detail = "`selector` not auto-generated";
            problems.invalid(&Path::new("spec"), "selector", selector.clone(), detail);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new_spec, old_spec, path) = (&new["spec"], &old["spec"], Path::new("spec"));
        for field in [
            "selector",
            "completionMode",
            "podFailurePolicy",
            "backoffLimitPerIndex",
            "managedBy",
            "successPolicy",
        ] {
            problems.immutable(new_spec, old_spec, &path, field);
        }
        update::validate_completions(new_spec, old_spec, &path, &mut problems);
        update::validate_template(new, old, &path, &mut problems);
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        status::validate(new, old)
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

    fn warnings(&self, job: &Value) -> Vec<String> {
        warnings::of_template(job, &["spec", "template"])
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
    // Labels that a job took over from its template stay those of its template, unless it was copied to get a name.
    let shared = job["metadata"].text("generateName").is_empty()
        && job["metadata"].has("labels")
        && job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"];
    let spec = job.ensure("spec");
    let labels = spec.ensure("template").ensure("metadata").ensure("labels");
    for label in NAME_LABELS {
        labels.set(label, name.as_str());
    }
    for label in UID_LABELS {
        labels.set(label, uid.as_str());
    }
    let labels = labels.clone();
    spec.ensure("selector").ensure("matchLabels").fill(UID_LABELS[0], uid);
    if shared {
        job.ensure("metadata").set("labels", labels);
    }
}

/// The pods of a job that did not choose its selector are marked as its own.
fn validate_generated(job: &Value, path: &Path, problems: &mut Problems) {
    let (uid, name) = (job["metadata"].text("uid"), job["metadata"].text("name"));
    if job["spec"].flag("manualSelector") || uid.is_empty() || !job["spec"].has("selector") {
        return;
    }
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let path = path.child("template").child("metadata").child("labels");
    let wanted = UID_LABELS
        .iter()
        .map(|label| (label, uid))
        .chain(NAME_LABELS.iter().map(|label| (label, name)));
    for (label, wanted) in wanted {
        let detail = format!("must be '{wanted}'");
        match labels[*label].as_str() {
            None => problems.required(&path.key(label), "", &detail),
            Some(found) if found != wanted => problems.invalid(&path.key(label), "", found, detail),
            Some(_) => {}
        }
    }
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

const MANAGED_BY_BYTES: usize = 63;

/// The checks that also hold in a CronJob's template.
pub(super) fn validate_job_spec(spec: &Value, path: &Path, problems: &mut Problems) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for field in counts {
        problems.not_negative(spec, path, field);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        problems.required(path, "backoffLimitPerIndex", "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        problems.form(path, "managedBy", manager, names::domain_prefixed_path(manager));
        if manager.len() > MANAGED_BY_BYTES {
            problems.extend([FieldError::too_long(&path.child("managedBy"), MANAGED_BY_BYTES)]);
        }
    }
    problems.optional_one_of(spec, path, "completionMode", &["NonIndexed", "Indexed"]);
    match spec.text("completionMode") {
        "Indexed" => policy::validate_indexed(spec, path, problems),
        "NonIndexed" => {
            let indexed_only = ["backoffLimitPerIndex", "maxFailedIndexes"];
            for field in indexed_only.into_iter().filter(|field| spec.has(field)) {
                problems.invalid(path, field, spec[field].clone(), "requires indexed completion mode");
            }
        }
        _ => {}
    }
    policy::validate_failure_policy(spec, path, problems);
    policy::validate_success_policy(spec, path, problems);
    let replacements: &[&str] = if spec.has("podFailurePolicy") {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    problems.optional_one_of(spec, path, "podReplacementPolicy", replacements);
    let template_path = path.child("template");
    validate_template(&spec["template"], &template_path, problems);
    // A job ends, so that its pods cannot restart forever.
    let pod = &spec["template"]["spec"];
    let pod_path = template_path.child("spec");
    match pod.text("restartPolicy") {
        "OnFailure" if spec.has("podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            problems.invalid(&pod_path, "restartPolicy", "OnFailure", detail);
        }
        "OnFailure" | "Never" => {}
        "Always" => {
            problems.extend([FieldError::required(
                &pod_path.child("restartPolicy"),
                "valid values: \"OnFailure\", \"Never\"",
            )]);
        }
        _ => problems.optional_one_of(pod, &pod_path, "restartPolicy", &["OnFailure", "Never"]),
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
