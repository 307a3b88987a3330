//! The rules of a job's status. Other controllers may write it too, so that it is held to be consistent; what was
//! inconsistent already may stay so as long as it is not touched.

use std::collections::HashSet;

use super::policy::intervals;
use crate::print;
use crate::workload::validate_counts;
use crate::{FieldError, Fields, Path, Problems, Value};

pub fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = validate_counts(new, &["active", "succeeded", "failed", "ready", "terminating"]);
    let path = Path::new("status");
    let change = Change { new, old };
    validate_uncounted(&new["status"], &path, &mut problems);
    validate_conditions(&change, &path, &mut problems);
    validate_end(&change, &path, &mut problems);
    validate_indexes(&change, &path, &mut problems);
    validate_transition(&change, &path, &mut problems);
    problems.into_vec()
}

struct Change<'a> {
    new: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    fn is_in(&self, fields: &[&str]) -> bool {
        let (new, old) = (&self.new["status"], &self.old["status"]);
        fields.iter().any(|field| new[*field] != old[*field])
    }

    /// Whether the job has one of these conditions now and had not, or the other way round.
    fn is_in_conditions(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| holds(self.new, kind) != holds(self.old, kind))
    }
}

fn holds(job: &Value, kind: &str) -> bool {
    status_of(job, kind) == Some("True")
}

fn status_of<'a>(job: &'a Value, kind: &str) -> Option<&'a str> {
    let mut conditions = job["status"].list("conditions").iter();
    let condition = conditions.find(|condition| condition.text("type") == kind)?;
    condition["status"].as_str()
}

fn validate_uncounted(status: &Value, path: &Path, problems: &mut Problems) {
    let lists = &status["uncountedTerminatedPods"];
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        let path = path.child("uncountedTerminatedPods").child(list);
        for (index, uid) in lists.list(list).iter().enumerate() {
            if *uid == "" {
                problems.invalid(&path.index(index), "", "", "must not be empty");
            } else if !seen.insert(uid) {
                problems.duplicate(&path.index(index), "", uid.clone());
            }
        }
    }
}

/// Conditions that exclude or need one another.
fn validate_conditions(change: &Change<'_>, path: &Path, problems: &mut Problems) {
    let has = |kind: &str| holds(change.new, kind);
    let changed = |kinds: &[&str]| change.is_in_conditions(kinds);
    let mut refuse = |when: bool, detail: &str| {
        if when {
            problems.invalid_whole(path, "conditions", detail);
        }
    };
    refuse(
        changed(&["Complete", "Failed"]) && has("Complete") && has("Failed"),
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        changed(&["Complete", "FailureTarget"]) && has("Complete") && has("FailureTarget"),
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    refuse(
        (changed(&["Failed"]) || change.is_in(&["failedIndexes"])) && has("Failed") && !has("FailureTarget"),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        changed(&["Complete", "SuccessCriteriaMet"]) && has("Complete") && !has("SuccessCriteriaMet"),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    refuse(
        has("SuccessCriteriaMet") && has("Failed"),
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    refuse(
        has("SuccessCriteriaMet") && has("FailureTarget"),
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
    refuse(
        change.new["spec"].has("successPolicy") && !has("SuccessCriteriaMet") && has("Complete"),
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
}

/// What a job that has ended must and must not have.
fn validate_end(change: &Change<'_>, path: &Path, problems: &mut Problems) {
    let (status, spec) = (&change.new["status"], &change.new["spec"]);
    let is_complete = holds(change.new, "Complete");
    let is_finished = is_complete || holds(change.new, "Failed");
    let completed = change.is_in_conditions(&["Complete"]) || change.is_in(&["completionTime"]);
    let ended = |field: &str| change.is_in_conditions(&["Complete", "Failed"]) || change.is_in(&[field]);
    if completed && status.has("completionTime") && !is_complete {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        problems.invalid(path, "completionTime", status["completionTime"].clone(), detail);
    }
    if completed && !status.has("completionTime") && is_complete {
        problems.required(path, "completionTime", "completionTime is required for Complete jobs");
    }
    let seconds = |field: &str| print::seconds(&status[field]);
    if change.is_in(&["startTime", "completionTime"])
        && let (Some(start), Some(end)) = (seconds("startTime"), seconds("completionTime"))
        && end < start
    {
        let detail = "must be equal to or after `startTime`";
        problems.invalid(path, "completionTime", status["completionTime"].clone(), detail);
    }
    let never_ran = spec.flag("suspend") && spec["completions"] == 0;
    if ended("startTime") && !never_ran && is_finished && !status.has("startTime") {
        problems.required(path, "startTime", "startTime is required for finished job");
    }
    for field in ["active", "terminating"] {
        if ended(field) && is_finished && status.number(field) > 0 {
            let detail = format!("{field}>0 is invalid for finished job");
            problems.invalid(path, field, status.number(field), detail);
        }
    }
    let uncounted = &status["uncountedTerminatedPods"];
    let names_any = !uncounted.list("succeeded").is_empty() || !uncounted.list("failed").is_empty();
    if ended("uncountedTerminatedPods") && is_finished && names_any {
        problems.invalid(
            path,
            "uncountedTerminatedPods",
            uncounted.clone(),
            "must be empty for finished job",
        );
    }
    if change.is_in(&["ready", "active"]) && status.has("ready") && status.number("ready") > status.number("active") {
        problems.invalid(
            path,
            "ready",
            status.number("ready"),
            "cannot set more ready pods than active",
        );
    }
}

fn validate_indexes(change: &Change<'_>, path: &Path, problems: &mut Problems) {
    let (status, spec) = (&change.new["status"], &change.new["spec"]);
    let completions = spec["completions"].as_i64();
    let mut broken = false;
    let mut read = |field: &str| {
        let text = status.text(field);
        let parsed = intervals(text, completions.unwrap_or(i64::MAX));
        let told = change.is_in(&[field]) && completions.is_some() && !broken;
        if let (Err(error), true) = (&parsed, told) {
            problems.invalid(path, field, text, format!("error parsing {field}: {error}"));
            broken = true;
        }
        parsed.unwrap_or_default()
    };
    let (done, failed) = (read("completedIndexes"), read("failedIndexes"));
    let is_indexed = spec.text("completionMode") == "Indexed";
    if change.is_in(&["completedIndexes"]) && !status.text("completedIndexes").is_empty() && !is_indexed {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        problems.invalid(path, "completedIndexes", status["completedIndexes"].clone(), detail);
    }
    if change.is_in(&["failedIndexes"]) && status.has("failedIndexes") && !spec.has("backoffLimitPerIndex") {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        problems.invalid(path, "failedIndexes", status["failedIndexes"].clone(), detail);
    }
    let shared = first_shared(&done, &failed);
    if let (Some(index), true) = (shared, change.is_in(&["completedIndexes", "failedIndexes"])) {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        problems.invalid(path, "failedIndexes", status["failedIndexes"].clone(), detail);
    }
}

/// The first index that is in both; intervals are in order and apart.
fn first_shared(one: &[(i64, i64)], other: &[(i64, i64)]) -> Option<i64> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    loop {
        let (a, b) = (one.peek()?, other.peek()?);
        let first = a.0.max(b.0);
        if first <= a.1.min(b.1) {
            return Some(first);
        }
        // What ends first meets nothing more.
        match a.1 < b.1 {
            true => one.next(),
            false => other.next(),
        };
    }
}

/// What never goes back.
fn validate_transition(change: &Change<'_>, path: &Path, problems: &mut Problems) {
    let (new, old, spec) = (&change.new["status"], &change.old["status"], &change.new["spec"]);
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if holds(change.old, kind) && !holds(change.new, kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            problems.invalid_whole(path, "conditions", detail);
        }
    }
    // An indexed job that is made smaller loses successes.
    let is_elastic = spec.text("completionMode") == "Indexed" && spec["completions"] == spec["parallelism"];
    for (field, may_fall) in [("failed", false), ("succeeded", is_elastic)] {
        if new.number(field) < old.number(field) && !may_fall {
            let detail = format!("cannot decrease the {field} counter");
            problems.invalid(path, field, new.number(field), detail);
        }
    }
    if new.has("completionTime") && old.has("completionTime") {
        problems.immutable(new, old, path, "completionTime");
    }
    let resumes = holds(change.old, "Suspended") && status_of(change.new, "Suspended") == Some("False");
    let may_restart = resumes || spec.flag("suspend") || !old.has("startTime");
    if change.is_in(&["startTime"]) && !may_restart {
        let detail = "field is immutable for unsuspended job once set";
        problems.invalid(path, "startTime", new["startTime"].clone(), detail);
    }
    if holds(change.old, "SuccessCriteriaMet") && !holds(change.new, "SuccessCriteriaMet") {
        problems.invalid_whole(
            path,
            "conditions",
            "cannot disable the SuccessCriteriaMet=True condition",
        );
    }
    let late = !holds(change.old, "SuccessCriteriaMet") && holds(change.new, "SuccessCriteriaMet");
    if holds(change.old, "Complete") && late {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        problems.invalid_whole(path, "conditions", detail);
    }
}
