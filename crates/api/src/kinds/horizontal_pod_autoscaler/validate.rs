//! What an autoscaler measures, and how fast it may act.

use crate::names::{dns1123_label, path_segment};
use crate::pod_spec::validate_resource;
use crate::{FieldError, Fields, Path, Problems, Value};

/// The types of metrics with the field that holds what each needs.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
/// The longest that a decision may be held back, and the longest that a policy may look back.
const WINDOW_SECONDS: i64 = 3600;
const PERIOD_SECONDS: i64 = 1800;

pub fn validate_metrics(spec: &Value, path: &Path, problems: &mut Problems) {
    for (index, metric) in spec.list("metrics").iter().enumerate() {
        validate_metric(metric, &path.child("metrics").index(index), problems);
    }
}

fn validate_metric(metric: &Value, path: &Path, problems: &mut Problems) {
    let kind = metric.text("type");
    if kind.is_empty() {
        problems.required(path, "type", "must specify a metric source type");
    }
    let field = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    if field.is_none() {
        let names = SOURCES.map(|(name, _)| name);
        problems.extend([FieldError::not_supported(&path.child("type"), kind, &names)]);
    }
    // Upstream looks at the sources in this order.
    for source in ["object", "external", "pods", "resource", "containerResource"] {
        if !metric[source].is_object() {
            continue;
        }
        let (of, place) = (&metric[source], path.child(source));
        match source {
            "object" => validate_object(of, &place, problems),
            "external" => validate_external(of, &place, problems),
            "pods" => validate_pods(of, &place, problems),
            "resource" => validate_resource_metric(of, &place, problems),
            _ => validate_container_metric(of, &place, problems),
        }
    }
    let Some(field) = field else { return };
    if !metric[field].is_object() {
        let detail = "must populate information for the given metric source";
        problems.required(path, field, detail);
    }
    for (_, other) in SOURCES {
        if other != field && metric[other].is_object() {
            problems.forbidden(path, other, "must populate the given metric source only");
        }
    }
}

fn validate_object(of: &Value, path: &Path, problems: &mut Problems) {
    let (object, place) = (&of["describedObject"], path.child("describedObject"));
    for field in ["kind", "name"] {
        if problems.needs(object, &place, field) {
            problems.form(
                &place,
                field,
                object.text(field),
                path_segment(object.text(field), false),
            );
        }
    }
    validate_identity(of, path, problems);
    validate_target(of, path, problems);
    if !of["target"].has("value") && !of["target"].has("averageValue") {
        let detail = "must set either a target value or averageValue";
        problems.required(&path.child("target"), "averageValue", detail);
    }
}

fn validate_external(of: &Value, path: &Path, problems: &mut Problems) {
    validate_identity(of, path, problems);
    validate_target(of, path, problems);
    let (target, path) = (&of["target"], path.child("target"));
    match (target.has("value"), target.has("averageValue")) {
        (true, true) => {
            let detail = "may not set both a target value for metric and a per-pod target";
            problems.forbidden(&path, "value", detail);
        }
        (false, false) => {
            let detail = "must set either a target value for metric or a per-pod target";
            problems.required(&path, "averageValue", detail);
        }
        _ => {}
    }
}

fn validate_pods(of: &Value, path: &Path, problems: &mut Problems) {
    validate_identity(of, path, problems);
    validate_target(of, path, problems);
    let average = quantity(&of["target"], "averageValue");
    if average.is_none_or(|amount| amount <= 0) {
        let detail = "must specify a positive target averageValue";
        problems.required(&path.child("target"), "averageValue", detail);
    }
}

fn validate_resource_metric(of: &Value, path: &Path, problems: &mut Problems) {
    if of.text("name").is_empty() {
        problems.required(path, "name", "must specify a resource name");
    }
    validate_target(of, path, problems);
    validate_one_target(of, path, problems);
}

fn validate_container_metric(of: &Value, path: &Path, problems: &mut Problems) {
    match of.text("name") {
        "" => problems.required(path, "name", "must specify a resource name"),
        name => validate_resource(name, &path.child("name"), problems),
    }
    match of.text("container") {
        "" => problems.required(path, "container", "must specify a container"),
        name => problems.form(path, "container", name, dns1123_label(name, false)),
    }
    validate_target(of, path, problems);
    validate_one_target(of, path, problems);
}

/// A raw value or a share of what is requested, not both.
fn validate_one_target(of: &Value, path: &Path, problems: &mut Problems) {
    let (target, path) = (&of["target"], path.child("target"));
    match (target.has("averageUtilization"), target.has("averageValue")) {
        (false, false) => {
            let detail = "must set either a target raw value or a target utilization";
            problems.required(&path, "averageUtilization", detail);
        }
        (true, true) => {
            let detail = "may not set both a target raw value and a target utilization";
            problems.forbidden(&path, "averageValue", detail);
        }
        _ => {}
    }
}

fn validate_identity(of: &Value, path: &Path, problems: &mut Problems) {
    let (metric, path) = (&of["metric"], path.child("metric"));
    match metric.text("name") {
        "" => problems.required(&path, "name", "must specify a metric name"),
        name => problems.form(&path, "name", name, path_segment(name, false)),
    }
}

fn validate_target(of: &Value, path: &Path, problems: &mut Problems) {
    let (target, path) = (&of["target"], path.child("target"));
    let kind = target.text("type");
    if kind.is_empty() {
        problems.required(&path, "type", "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        problems.invalid(&path, "type", kind, detail);
    }
    for field in ["value", "averageValue"] {
        if quantity(target, field).is_some_and(|amount| amount <= 0) {
            problems.invalid(&path, field, target.text(field), "must be positive");
        }
    }
    if let Some(share) = target["averageUtilization"].as_i64().filter(|share| *share < 1) {
        problems.invalid(&path, "averageUtilization", share, "must be greater than 0");
    }
}

/// Only the sign matters here.
fn quantity(target: &Value, field: &str) -> Option<i128> {
    let amount = target[field].as_str()?.parse::<schema::quantity::Quantity>().ok()?;
    Some(
        match (amount.is_negative(), amount == schema::quantity::Quantity::ZERO) {
            (true, _) => -1,
            (_, true) => 0,
            _ => 1,
        },
    )
}

pub fn validate_behavior(spec: &Value, path: &Path, problems: &mut Problems) {
    for field in ["scaleUp", "scaleDown"] {
        if spec["behavior"][field].is_object() {
            validate_speed(&spec["behavior"][field], &path.child("behavior").child(field), problems);
        }
    }
}

fn validate_speed(rules: &Value, path: &Path, problems: &mut Problems) {
    let field = "stabilizationWindowSeconds";
    match rules.number(field) {
        ..0 => problems.invalid(
            path,
            field,
            rules.number(field),
            "must be greater than or equal to zero",
        ),
        seconds if seconds > WINDOW_SECONDS => {
            let detail = format!("must be less than or equal to {WINDOW_SECONDS}");
            problems.invalid(path, field, seconds, detail);
        }
        _ => {}
    }
    problems.optional_one_of(rules, path, "selectPolicy", &["Disabled", "Max", "Min"]);
    let policies = rules.list("policies");
    if policies.is_empty() {
        problems.required(path, "policies", "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = path.child("policies").index(index);
        let kind = policy.text("type");
        if !["Percent", "Pods"].contains(&kind) {
            problems.extend([FieldError::not_supported(
                &path.child("type"),
                kind,
                &["Percent", "Pods"],
            )]);
        }
        for field in ["value", "periodSeconds"] {
            if policy.number(field) <= 0 {
                problems.invalid(&path, field, policy.number(field), "must be greater than zero");
            }
        }
        if policy.number("periodSeconds") > PERIOD_SECONDS {
            let detail = format!("must be less than or equal to {PERIOD_SECONDS}");
            problems.invalid(&path, "periodSeconds", policy.number("periodSeconds"), detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(metric: Value, expect: Expect) {
        let mut problems = Problems::default();
        validate_metric(&metric, &Path::new("m"), &mut problems);
        let shown: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        expect.assert_eq(&shown.join("\n"));
    }

    #[test]
    fn a_metric_has_the_source_that_its_type_names() {
        check(
            json!({"type": "Resource"}),
            expect!["m.resource: Required value: must populate information for the given metric source"],
        );
        check(
            json!({"type": "Odd"}),
            expect![[
                r#"m.type: Unsupported value: "Odd": supported values: "ContainerResource", "External", "Object", "Pods", "Resource""#
            ]],
        );
        let target = json!({"type": "Utilization", "averageUtilization": 0, "averageValue": "-1"});
        check(
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}),
            expect![[r#"
                m.resource.target.averageValue: Invalid value: "-1": must be positive
                m.resource.target.averageUtilization: Invalid value: 0: must be greater than 0
                m.resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization"#]],
        );
    }

    #[test]
    fn policies_look_back_for_half_an_hour_at_most() {
        let rules = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}});
        let mut problems = Problems::default();
        validate_behavior(&json!({"behavior": rules}), &Path::new("spec"), &mut problems);
        let shown: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        let detail =
            "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800";
        assert_eq!(shown, [detail]);
    }
}
