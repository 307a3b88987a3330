//! HorizontalPodAutoscaler: as many pods as the load needs. Version 1 is a view of version 2, in which it is stored.

mod validate;

use serde_json::json;

use crate::convert::{METRICS, drop_unreadable};
use crate::names::path_segment;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};

pub static HORIZONTAL_POD_AUTOSCALER: Resource = Resource::namespaced(
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
)
.short(&["hpa"])
.in_categories(&["all"])
.with_subresources(&[Subresource::STATUS])
.with_rules(&HorizontalPodAutoscalerRules);

pub static HORIZONTAL_POD_AUTOSCALER_V1: Resource = Resource::namespaced(
    "autoscaling",
    "v1",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
)
.short(&["hpa"])
.in_categories(&["all"])
.stored_as("autoscaling", "v2")
.with_subresources(&[Subresource::STATUS])
.with_rules(&HorizontalPodAutoscalerV1Rules);

struct HorizontalPodAutoscalerRules;
struct HorizontalPodAutoscalerV1Rules;

/// Percent of the requested CPU that pods should use.
const CPU_UTILIZATION: i64 = 80;

impl Rules for HorizontalPodAutoscalerRules {
    fn default(&self, autoscaler: &mut Value) {
        let spec = autoscaler.ensure("spec");
        spec.fill("minReplicas", 1);
        if spec.list("metrics").is_empty() {
            let target = json!({"type": "Utilization", "averageUtilization": CPU_UTILIZATION});
            spec.set(
                "metrics",
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
            );
        }
        if let Some(behavior) = spec.child_mut("behavior") {
            default_behavior(behavior);
        }
    }

    fn prepare_create(&self, autoscaler: &mut Value) {
        autoscaler.set("status", json!({"desiredReplicas": 0, "currentMetrics": null}));
    }

    fn validate(&self, autoscaler: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.extend(validate_bounds(autoscaler));
        let (spec, path) = (&autoscaler["spec"], Path::new("spec"));
        validate::validate_metrics(spec, &path, &mut problems);
        validate::validate_behavior(spec, &path, &mut problems);
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        crate::workload::validate_counts(new, &["currentReplicas", "desiredReplicas"]).into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, autoscaler: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&autoscaler["spec"], &autoscaler["status"]);
        let target = &spec["scaleTargetRef"];
        let least = spec["minReplicas"]
            .as_i64()
            .map_or_else(|| "<unset>".to_owned(), |number| number.to_string());
        vec![
            print::name(autoscaler),
            format!("{}/{}", target.text("kind"), target.text("name")).into(),
            metrics(spec.list("metrics"), status.list("currentMetrics")).into(),
            least.into(),
            spec.number("maxReplicas").into(),
            status.number("currentReplicas").into(),
            print::age(autoscaler, now),
        ]
    }
}

impl Rules for HorizontalPodAutoscalerV1Rules {
    fn default(&self, autoscaler: &mut Value) {
        drop_unreadable(autoscaler);
        // Without any metric it is the use of CPU, which version 1 has a field for.
        let named = serde_json::from_str::<Vec<Value>>(autoscaler["metadata"]["annotations"].text(METRICS));
        let spec = autoscaler.ensure("spec");
        spec.fill("minReplicas", 1);
        if named.unwrap_or_default().is_empty() {
            spec.fill_absent("targetCPUUtilizationPercentage", CPU_UTILIZATION);
        }
    }

    fn prepare_create(&self, autoscaler: &mut Value) {
        autoscaler.set("status", json!({"currentReplicas": 0, "desiredReplicas": 0}));
    }

    /// What is in annotations here is checked as what it is.
    fn validate(&self, autoscaler: &Value) -> Vec<FieldError> {
        let mut current = autoscaler.clone();
        crate::convert(&mut current, "autoscaling/v2");
        HorizontalPodAutoscalerRules.validate(&current)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, autoscaler: &Value, now: i64) -> Vec<Value> {
        let mut stored = autoscaler.clone();
        crate::convert(&mut stored, "autoscaling/v2");
        HorizontalPodAutoscalerRules.cells(&stored, now)
    }
}

/// Growing is fast, at most double or four pods each 15 seconds; shrinking may take all but waits first, for as long as
/// the controller is told to.
fn default_behavior(behavior: &mut Value) {
    let up = behavior.ensure("scaleUp");
    up.fill("stabilizationWindowSeconds", 0);
    up.fill_absent("selectPolicy", "Max");
    up.fill_absent(
        "policies",
        json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]),
    );
    let down = behavior.ensure("scaleDown");
    down.fill_absent("selectPolicy", "Max");
    down.fill_absent(
        "policies",
        json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
    );
}

/// `current/target` of the first two metrics.
fn metrics(specs: &[Value], statuses: &[Value]) -> String {
    let shown: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    match shown.as_slice() {
        [] => "<none>".to_owned(),
        few if few.len() <= 2 => few.join(", "),
        many => format!("{} + {} more...", many[..2].join(", "), many.len() - 2),
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    let (field, named) = match spec.text("type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&spec[field]["target"], &status[field]["current"]);
    let amount = |of: &Value, field: &str| of[field].as_str().unwrap_or("<unknown>").to_owned();
    let percent = |of: &Value, unset: &str| match of["averageUtilization"].as_i64() {
        Some(number) => format!("{number}%"),
        None => unset.to_owned(),
    };
    let average = target.has("averageValue");
    let text = match (named, average) {
        (true, false) => format!("{}/{}", percent(current, "<unknown>"), percent(target, "<auto>")),
        (_, true) => format!("{}/{}", amount(current, "averageValue"), amount(target, "averageValue")),
        (false, false) => format!("{}/{}", amount(current, "value"), amount(target, "value")),
    };
    match (named, field) {
        (true, _) => format!("{}: {text}", spec[field].text("name")),
        (false, "external" | "object") if average => format!("{text} (avg)"),
        (false, _) => text,
    }
}

fn validate_bounds(autoscaler: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let (spec, path) = (&autoscaler["spec"], Path::new("spec"));
    let (least, most) = (spec["minReplicas"].as_i64(), spec.number("maxReplicas"));
    if let Some(least) = least.filter(|least| *least < 1) {
        problems.invalid(&path, "minReplicas", least, "must be greater than or equal to 1");
    }
    let scales_alone = |metric: &Value| matches!(metric.text("type"), "Object" | "External");
    if least == Some(0) && !spec.list("metrics").iter().any(scales_alone) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        problems.forbidden(&path, "metrics", detail);
    }
    match most {
        0 => problems.required(&path, "maxReplicas", "must be set and greater than 0"),
        ..0 => problems.invalid(&path, "maxReplicas", most, "must be greater than or equal to 1"),
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        problems.invalid(
            &path,
            "maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
        );
    }
    let (target, path) = (&spec["scaleTargetRef"], path.child("scaleTargetRef"));
    for field in ["kind", "name"] {
        if problems.needs(target, &path, field) {
            let text = target.text(field);
            problems.form(&path, field, text, path_segment(text, false));
        }
    }
    let version = target.text("apiVersion");
    if !version.contains('/') && target.text("kind") != "ReplicationController" {
        problems.invalid(&path, "apiVersion", version, "apiVersion must specify API group");
    }
    let parts: Vec<&str> = version.split('/').collect();
    if parts.len() > 2 {
        let detail = format!("unexpected GroupVersion string: {version}");
        problems.invalid(&path, "apiVersion", version, detail);
    }
    problems.into_vec()
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Reference", "What is scaled."),
    print::text("Targets", "What is measured, and what it should be."),
    print::text("MinPods", "The fewest pods."),
    print::text("MaxPods", "The most pods."),
    print::text("Replicas", "The pods there are."),
    AGE,
];
