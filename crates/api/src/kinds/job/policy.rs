//! The checks of a job's policies and of what only indexed jobs have.

use std::collections::HashSet;

use crate::{FieldError, Fields, Path, Problems, Value, names, repeats, texts};

/// The most pods of an indexed job at a time, and the most of its indexes that may fail.
const MOST_PARALLEL: i64 = 100_000;
const MOST_FAILED: i64 = 100_000;
/// From this many completions on, failures that are counted by index must be few.
const MANY_COMPLETIONS: i64 = 100_000;
const MOST_PARALLEL_OF_MANY: i64 = 10_000;
const MOST_FAILED_OF_MANY: i64 = 10_000;
const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
const MOST_PATTERNS: usize = 20;
const SUCCEEDED_INDEXES_BYTES: usize = 64 * 1024;

pub fn validate_indexed(spec: &Value, path: &Path, problems: &mut Problems) {
    let completions = spec["completions"].as_i64();
    if completions.is_none() {
        problems.required(path, "completions", "when completion mode is Indexed");
    }
    let completions = completions.unwrap_or(i64::MAX);
    at_most(
        spec,
        path,
        "parallelism",
        MOST_PARALLEL,
        " when completion mode is Indexed",
        problems,
    );
    if completions >= 0 && spec.number("maxFailedIndexes") > completions {
        let value = spec.number("maxFailedIndexes");
        problems.invalid(
            path,
            "maxFailedIndexes",
            value,
            "must be less than or equal to completions",
        );
    }
    at_most(spec, path, "maxFailedIndexes", MOST_FAILED, "", problems);
    if completions > MANY_COMPLETIONS && spec.has("completions") && spec.has("backoffLimitPerIndex") {
        if !spec.has("maxFailedIndexes") {
            let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            problems.required(path, "maxFailedIndexes", &detail);
        }
        let when = format!(" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        at_most(spec, path, "parallelism", MOST_PARALLEL_OF_MANY, &when, problems);
        at_most(spec, path, "maxFailedIndexes", MOST_FAILED_OF_MANY, &when, problems);
    }
}

/// The pods of an indexed job are named after it and their index.
pub fn validate_host_names(job: &Value, problems: &mut Problems) {
    let (name, completions) = (job["metadata"].text("name"), job["spec"].number("completions"));
    if job["spec"].text("completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let longest = format!("{name}-{}", completions - 1);
    if !names::dns1123_label(&longest, false).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        problems.invalid(&Path::new("metadata"), "name", name, detail);
    }
}

pub fn validate_failure_policy(spec: &Value, path: &Path, problems: &mut Problems) {
    if !spec.has("podFailurePolicy") {
        return;
    }
    let path = path.child("podFailurePolicy").child("rules");
    let rules = spec["podFailurePolicy"].list("rules");
    if rules.len() > MOST_RULES {
        problems.extend([FieldError::too_many(&path, rules.len(), MOST_RULES)]);
    }
    let pod = &spec["template"]["spec"];
    let mut containers = texts(pod.list("containers"), "name");
    containers.extend(texts(pod.list("initContainers"), "name"));
    for (index, rule) in rules.iter().enumerate() {
        validate_failure_rule(spec, &containers, rule, &path.index(index), problems);
    }
}

fn validate_failure_rule(spec: &Value, containers: &HashSet<&str>, rule: &Value, path: &Path, problems: &mut Problems) {
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    match rule.text("action") {
        "FailIndex" if !spec.has("backoffLimitPerIndex") => {
            problems.invalid(
                path,
                "action",
                "FailIndex",
                "requires the backoffLimitPerIndex to be set",
            );
        }
        _ => required_one_of(rule, path, "action", &actions, problems),
    }
    let patterns = rule.list("onPodConditions");
    if rule.has("onExitCodes") {
        validate_exit_codes(containers, &rule["onExitCodes"], &path.child("onExitCodes"), problems);
    }
    validate_patterns(patterns, &path.child("onPodConditions"), problems);
    match (rule.has("onExitCodes"), !patterns.is_empty()) {
        (true, true) => {
            problems.invalid_whole(
                path,
                "",
                "specifying both OnExitCodes and OnPodConditions is not supported",
            );
        }
        (false, false) => {
            problems.invalid_whole(
                path,
                "",
                "specifying one of OnExitCodes and OnPodConditions is required",
            );
        }
        _ => {}
    }
}

fn validate_patterns(patterns: &[Value], path: &Path, problems: &mut Problems) {
    if patterns.len() > MOST_PATTERNS {
        problems.extend([FieldError::too_many(path, patterns.len(), MOST_PATTERNS)]);
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let path = path.index(index);
        problems.form(
            &path,
            "type",
            pattern.text("type"),
            names::label_key(pattern.text("type")),
        );
        required_one_of(pattern, &path, "status", &["False", "True", "Unknown"], problems);
    }
}

fn validate_exit_codes(containers: &HashSet<&str>, codes: &Value, path: &Path, problems: &mut Problems) {
    required_one_of(codes, path, "operator", &["In", "NotIn"], problems);
    if let Some(name) = codes["containerName"].as_str()
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        problems.invalid(path, "containerName", name, detail);
    }
    let values = codes.list("values");
    let values_path = path.child("values");
    if values.is_empty() {
        problems.invalid(
            path,
            "values",
            codes["values"].clone(),
            "at least one value is required",
        );
    } else if values.len() > MOST_EXIT_CODES {
        problems.extend([FieldError::too_many(&values_path, values.len(), MOST_EXIT_CODES)]);
    }
    let repeated = repeats(values);
    for (index, value) in values.iter().enumerate() {
        let path = values_path.index(index);
        if codes.text("operator") == "In" && *value == 0 {
            problems.invalid(&path, "", 0, "must not be 0 for the In operator");
        }
        if repeated[index] {
            problems.duplicate(&path, "", value.clone());
        }
    }
    if !values.is_sorted_by_key(Value::as_i64) {
        problems.invalid(path, "values", values.to_vec(), "must be ordered");
    }
}

pub fn validate_success_policy(spec: &Value, path: &Path, problems: &mut Problems) {
    let policy = &spec["successPolicy"];
    if policy.is_null() {
        return;
    }
    if spec.text("completionMode") != "Indexed" {
        return problems.invalid(
            path,
            "successPolicy",
            policy.clone(),
            "requires indexed completion mode",
        );
    }
    let path = path.child("successPolicy").child("rules");
    let rules = policy.list("rules");
    if rules.is_empty() {
        problems.required(
            &path,
            "",
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if rules.len() > MOST_RULES {
        problems.extend([FieldError::too_many(&path, rules.len(), MOST_RULES)]);
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_success_rule(spec.number("completions"), rule, &path.index(index), problems);
    }
}

fn validate_success_rule(completions: i64, rule: &Value, path: &Path, problems: &mut Problems) {
    if !rule.has("succeededCount") && !rule.has("succeededIndexes") {
        problems.required(
            path,
            "",
            "at least one of succeededCount or succeededIndexes must be specified",
        );
    }
    let mut named = 0;
    if let Some(text) = rule["succeededIndexes"].as_str() {
        if text.len() > SUCCEEDED_INDEXES_BYTES {
            problems.extend([FieldError::too_long(
                &path.child("succeededIndexes"),
                SUCCEEDED_INDEXES_BYTES,
            )]);
        }
        match intervals(text, completions) {
            Ok(intervals) => named = intervals.iter().map(|(first, last)| last - first + 1).sum(),
            Err(error) => {
                let detail = format!("error parsing succeededIndexes: {error}");
                problems.invalid(path, "succeededIndexes", text, detail);
            }
        }
    }
    if let Some(count) = rule["succeededCount"].as_i64() {
        problems.not_negative(rule, path, "succeededCount");
        let mut at_most = |most: i64, what: &str| {
            if count > most {
                problems.invalid(
                    path,
                    "succeededCount",
                    count,
                    format!("must be less than or equal to {most} ({what})"),
                );
            }
        };
        at_most(completions, "the number of specified completions");
        if rule.has("succeededIndexes") {
            at_most(named, "the number of indexes in the specified succeededIndexes field");
        }
    }
}

/// Reads `0,2-5` strictly: in order, and all below `completions`.
pub fn intervals(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    if text.is_empty() {
        return Ok(intervals);
    }
    for part in text.split(',') {
        let (first, last) = interval(part, completions)?;
        if let Some((_, previous)) = intervals.last().filter(|(_, previous)| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        intervals.push((first, last));
    }
    Ok(intervals)
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let number = |text: &str| -> Result<i64, String> {
        let number = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions {
            return Err(format!("too large index: {text:?}"));
        }
        Ok(number)
    };
    match text.split('-').collect::<Vec<_>>()[..] {
        [one] => Ok((number(one)?, number(one)?)),
        [first, last] => {
            let (first, last) = (number(first)?, number(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        )),
    }
}

/// A text that must be there, with a hint, and be one of a few.
fn required_one_of(object: &Value, path: &Path, field: &str, supported: &[&str], problems: &mut Problems) {
    if object.text(field).is_empty() {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        problems.required(path, field, &format!("valid values: [{}]", quoted.join(" ")));
    } else {
        problems.optional_one_of(object, path, field, supported);
    }
}

fn at_most(spec: &Value, path: &Path, field: &str, most: i64, when: &str, problems: &mut Problems) {
    let value = spec.number(field);
    if value > most {
        problems.invalid(
            path,
            field,
            value,
            format!("must be less than or equal to {most}{when}"),
        );
    }
}
