//! What kinds with a template and a selector have in common.

use std::collections::BTreeMap;

use crate::names::label_key;
use crate::pod_spec::validate_template;
use crate::selector::Selector;
use crate::{FieldError, Fields, LabelSelector, Path, Problems, Value, validate_label_selector};

/// Checks selector and template of a workload that keeps its pods running. `kind` is how messages name it, such as
/// `deployment`.
pub fn validate_running(spec: &Value, kind: &str, title: &str, path: &Path, problems: &mut Problems) {
    validate_selector(spec, kind, path, problems);
    let template = &spec["template"];
    let template_path = path.child("template");
    validate_template(template, &template_path, problems);
    let pod_path = template_path.child("spec");
    if !matches!(template["spec"].text("restartPolicy"), "" | "Always") {
        problems.optional_one_of(&template["spec"], &pod_path, "restartPolicy", &["Always"]);
    }
    if template["spec"].has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {title} is not Supported");
        problems.forbidden(&pod_path, "activeDeadlineSeconds", detail);
    }
}

/// A selector must be there, must not pick everything, and must pick the template's pods.
pub fn validate_selector(spec: &Value, kind: &str, path: &Path, problems: &mut Problems) {
    let selector = &spec["selector"];
    if !selector.is_object() {
        // Upstream takes a missing selector of a DaemonSet for one that picks nothing.
        if kind != "daemonset" {
            problems.required(path, "selector", "");
        }
        return reject_labels(spec, path, problems);
    }
    let found = validate_label_selector(selector, &path.child("selector"));
    let broken = !found.is_empty();
    problems.extend(found);
    let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap_or_default();
    if parsed.match_labels.is_empty() && parsed.match_expressions.is_empty() {
        let detail = format!("empty selector is invalid for {kind}");
        problems.invalid(path, "selector", selector.clone(), detail);
    }
    if broken && kind == "daemonset" {
        return;
    }
    if broken {
        let detail = if kind == "statefulset" {
            ""
        } else {
            "invalid label selector"
        };
        return problems.invalid(path, "selector", selector.clone(), detail);
    }
    validate_selected(spec, &Selector::from(&parsed), path, problems);
}

/// The labels of the template are those that the selector asks for.
pub fn validate_selected(spec: &Value, selector: &Selector, path: &Path, problems: &mut Problems) {
    let labels = spec["template"]["metadata"]["labels"].clone();
    let held: BTreeMap<String, String> = serde_json::from_value(labels).unwrap_or_default();
    if !selector.matches(&held) {
        reject_labels(spec, path, problems);
    }
}

fn reject_labels(spec: &Value, path: &Path, problems: &mut Problems) {
    let labels = spec["template"]["metadata"]["labels"].clone();
    let path = path.child("template").child("metadata");
    problems.invalid(&path, "labels", labels, "`selector` does not match template `labels`");
}

/// The selector of an existing workload stays, or its pods would be nobody's.
pub fn validate_selector_stays(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    problems.immutable(&new["spec"], &old["spec"], &Path::new("spec"), "selector");
    problems.into_vec()
}

/// A number that is not negative, or a percentage.
pub fn validate_amount(object: &Value, field: &str, path: &Path, problems: &mut Problems) {
    match &object[field] {
        Value::Null => {}
        Value::String(text) if percent(text).is_none() => {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                          '93%', regex used for validation is '[0-9]+%')";
            problems.invalid(path, field, text.as_str(), detail);
        }
        Value::String(_) => {}
        _ => problems.not_negative(object, path, field),
    }
}

/// Like [`validate_amount`], and at most everything.
pub fn validate_share(object: &Value, field: &str, path: &Path, problems: &mut Problems) {
    validate_amount(object, field, path, problems);
    if let Some(text) = object[field].as_str()
        && percent(text).is_some_and(|percent| percent > 100)
    {
        problems.invalid(path, field, text, "must not be greater than 100%");
    }
}

/// The number of an amount, whether it is a percentage or not.
pub fn amount(object: &Value, field: &str) -> i64 {
    match object[field].as_str() {
        Some(text) => percent(text).unwrap_or_default(),
        None => object.number(field),
    }
}

fn percent(text: &str) -> Option<i64> {
    text.strip_suffix('%')
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?
        .parse()
        .ok()
}

/// A condition of the kind that all newer kinds have.
pub fn validate_condition(condition: &Value, path: &Path, problems: &mut Problems) {
    let kind = condition.text("type");
    match kind {
        "" => problems.required(path, "type", ""),
        kind => problems.form(path, "type", kind, label_key(kind)),
    }
    let states = ["False", "True", "Unknown"];
    if !states.contains(&condition.text("status")) {
        let place = path.child("status");
        problems.extend([FieldError::not_supported(&place, condition.text("status"), &states)]);
    }
    problems.not_negative(condition, path, "observedGeneration");
    if !condition.has("lastTransitionTime") {
        problems.required(path, "lastTransitionTime", "");
    }
    let reason = condition.text("reason");
    if reason.is_empty() {
        problems.required(path, "reason", "");
    }
}

/// Counts of a status that must not be negative.
pub fn validate_counts(new: &Value, fields: &[&str]) -> Problems {
    let mut problems = Problems::default();
    for field in fields {
        problems.not_negative(&new["status"], &Path::new("status"), field);
    }
    problems
}

/// Pods that are available are ready.
pub fn validate_available(new: &Value, problems: &mut Problems) {
    let status = &new["status"];
    let available = status.number("availableReplicas");
    if available > status.number("readyReplicas") {
        let detail = "cannot be greater than readyReplicas";
        problems.invalid(&Path::new("status"), "availableReplicas", available, detail);
    }
}

/// Counts of a status that are part of another count.
pub fn validate_parts(new: &Value, whole: &str, parts: &[&str], problems: &mut Problems) {
    let status = &new["status"];
    for part in parts {
        if status.number(part) > status.number(whole) {
            let detail = format!("cannot be greater than status.{whole}");
            problems.invalid(&Path::new("status"), part, status.number(part), detail);
        }
    }
}
