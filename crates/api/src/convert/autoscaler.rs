//! HorizontalPodAutoscaler between version 2 and version 1.
//!
//! Version 1 knows one metric, the use of CPU. Everything else travels in annotations, in the forms that upstream gives
//! them, so that a client of version 1 can read and write an autoscaler of version 2 without losing any of it.

use serde_json::{Map, json};

use crate::{Fields, Value};

pub(crate) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The kinds of metrics, and the field that describes each.
const KINDS: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Annotations that cannot be read are not kept.
pub(crate) fn drop_unreadable(autoscaler: &mut Value) {
    let Some(metadata) = autoscaler.child_mut("metadata") else {
        return;
    };
    let Some(annotations) = metadata.child_mut("annotations") else {
        return;
    };
    for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        if annotations.has(name) && serde_json::from_str::<Value>(annotations.text(name)).is_err() {
            annotations.remove(name);
        }
    }
    if annotations.as_object().is_some_and(Map::is_empty) {
        metadata.remove("annotations");
    }
}

pub fn to_v1(autoscaler: &mut Value) {
    drop_annotations(autoscaler);
    let spec = autoscaler.ensure("spec");
    let metrics = taken(spec.remove("metrics"));
    let behavior = spec.remove("behavior");
    let (cpu, others): (Vec<Value>, Vec<Value>) = metrics.into_iter().partition(is_cpu_utilization);
    if let Some(first) = cpu.first() {
        let percentage = first["resource"]["target"]["averageUtilization"].clone();
        spec.set("targetCPUUtilizationPercentage", percentage);
    }
    annotate(
        autoscaler,
        METRICS,
        &others.iter().map(metric_to_v1).collect::<Vec<_>>(),
    );
    if let Some(behavior) = behavior {
        annotate_value(autoscaler, BEHAVIOR, &capitalised(&behavior));
    }
    let status = autoscaler.ensure("status");
    let current = taken(status.remove("currentMetrics"));
    let conditions = taken(status.remove("conditions"));
    let used = current
        .iter()
        .find(|metric| metric.text("type") == "Resource" && metric["resource"]["name"] == "cpu");
    if let Some(percentage) = used.and_then(|metric| metric["resource"]["current"].get("averageUtilization")) {
        status.set("currentCPUUtilizationPercentage", percentage.clone());
    }
    status.fill("currentReplicas", 0);
    annotate(
        autoscaler,
        CURRENT_METRICS,
        &current.iter().map(current_to_v1).collect::<Vec<_>>(),
    );
    annotate(autoscaler, CONDITIONS, &conditions);
}

pub fn to_v2(autoscaler: &mut Value) {
    let kept =
        |name: &str| -> Option<Value> { serde_json::from_str(autoscaler["metadata"]["annotations"].text(name)).ok() };
    let mut metrics: Vec<Value> = taken(kept(METRICS)).iter().map(metric_to_v2).collect();
    let current: Vec<Value> = taken(kept(CURRENT_METRICS)).iter().map(current_to_v2).collect();
    let (conditions, behavior) = (kept(CONDITIONS), kept(BEHAVIOR));
    drop_annotations(autoscaler);
    let spec = autoscaler.ensure("spec");
    if let Some(percentage) = spec.remove("targetCPUUtilizationPercentage") {
        metrics.push(cpu_metric("target", percentage));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric("target", 80.into()));
    }
    spec.set("metrics", metrics);
    if let Some(behavior) = behavior {
        spec.set("behavior", uncapitalised(&behavior));
    }
    let status = autoscaler.ensure("status");
    let used = status.remove("currentCPUUtilizationPercentage");
    match (current.is_empty(), used) {
        (false, _) => status.set("currentMetrics", current),
        (true, Some(percentage)) => {
            status.set(
                "currentMetrics",
                json!([{
                    "type": "Resource",
                    "resource": {"name": "cpu", "current": {"averageUtilization": percentage}},
                }]),
            );
        }
        (true, None) => {}
    }
    if let Some(conditions) = conditions {
        status.set("conditions", conditions);
    }
}

fn is_cpu_utilization(metric: &Value) -> bool {
    let resource = &metric["resource"];
    metric.text("type") == "Resource" && resource["name"] == "cpu" && resource["target"].has("averageUtilization")
}

fn cpu_metric(field: &str, percentage: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percentage});
    json!({"type": "Resource", "resource": {"name": "cpu", (field): target}})
}

/// Version 1 writes a metric's name, selector and targets beside each other.
fn metric_to_v1(metric: &Value) -> Value {
    flat(metric, "target", |field| format!("target{}", capital(field)))
}

fn metric_to_v2(metric: &Value) -> Value {
    nested(metric, "target", |field| field.strip_prefix("target").map(uncapital))
}

fn current_to_v1(metric: &Value) -> Value {
    flat(metric, "current", |field| format!("current{}", capital(field)))
}

fn current_to_v2(metric: &Value) -> Value {
    nested(metric, "current", |field| field.strip_prefix("current").map(uncapital))
}

fn flat(metric: &Value, values: &str, name: impl Fn(&str) -> String) -> Value {
    let Some((kind, field)) = KINDS.iter().find(|(kind, _)| metric.text("type") == *kind) else {
        return metric.clone();
    };
    let source = &metric[*field];
    let mut out = Map::new();
    for (key, value) in source.as_object().into_iter().flatten() {
        match key.as_str() {
            "metric" => {
                out.insert("metricName".to_owned(), value["name"].clone());
                if let Some(selector) = value.get("selector") {
                    let key = if *kind == "External" {
                        "metricSelector"
                    } else {
                        "selector"
                    };
                    out.insert(key.to_owned(), selector.clone());
                }
            }
            "describedObject" => {
                out.insert("target".to_owned(), value.clone());
            }
            key if key == values => {
                for (key, amount) in value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(key, _)| *key != "type")
                {
                    // An object's average alone has no prefix.
                    let plain = *kind == "Object" && key == "averageValue";
                    out.insert(if plain { key.clone() } else { name(key) }, amount.clone());
                }
            }
            key => {
                out.insert(key.to_owned(), value.clone());
            }
        }
    }
    json!({"type": kind, (*field): out})
}

fn nested(metric: &Value, values: &str, name: impl Fn(&str) -> Option<String>) -> Value {
    let Some((kind, field)) = KINDS.iter().find(|(kind, _)| metric.text("type") == *kind) else {
        return metric.clone();
    };
    let mut out = json!({});
    for (key, value) in metric[*field].as_object().into_iter().flatten() {
        match key.as_str() {
            "metricName" => out.ensure("metric").set("name", value.clone()),
            "selector" | "metricSelector" => out.ensure("metric").set("selector", value.clone()),
            "target" => out.set("describedObject", value.clone()),
            "averageValue" => out.ensure(values).set("averageValue", value.clone()),
            key => match name(key) {
                Some(key) => out.ensure(values).set(&key, value.clone()),
                None => out.set(key, value.clone()),
            },
        }
    }
    if values == "target" {
        let target = out.ensure(values);
        let kind = match (target.has("averageUtilization"), target.has("averageValue")) {
            (true, _) => "Utilization",
            (false, true) => "AverageValue",
            (false, false) => "Value",
        };
        target.set("type", kind);
    }
    json!({"type": kind, (*field): out})
}

/// Upstream writes the behaviour with the names that its own code has.
fn capitalised(value: &Value) -> Value {
    rekeyed(value, capital)
}

fn uncapitalised(value: &Value) -> Value {
    rekeyed(value, uncapital)
}

fn rekeyed(value: &Value, name: fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (name(key), rekeyed(value, name)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| rekeyed(item, name)).collect(),
        other => other.clone(),
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next();
    first
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(characters)
        .collect()
}

fn uncapital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next();
    first
        .into_iter()
        .flat_map(char::to_lowercase)
        .chain(characters)
        .collect()
}

fn taken(list: Option<Value>) -> Vec<Value> {
    match list {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn annotate(autoscaler: &mut Value, name: &str, items: &[Value]) {
    if !items.is_empty() {
        annotate_value(autoscaler, name, &Value::from(items.to_vec()));
    }
}

fn annotate_value(autoscaler: &mut Value, name: &str, value: &Value) {
    autoscaler
        .ensure("metadata")
        .ensure("annotations")
        .set(name, value.to_string());
}

/// Only what the conversion itself writes is believed.
fn drop_annotations(autoscaler: &mut Value) {
    let metadata = autoscaler.ensure("metadata");
    let Some(annotations) = metadata.child_mut("annotations") else {
        return;
    };
    for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        annotations.remove(name);
    }
    if metadata.entries("annotations").next().is_none() {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn an_autoscaler_keeps_everything_through_version_1() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {
                "maxReplicas": 5,
                "behavior": {"scaleUp": {"selectPolicy": "Max"}},
                "metrics": [
                    {"type": "Pods", "pods": {
                        "metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
                    {"type": "Object", "object": {
                        "describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "hits"},
                        "target": {"type": "Value", "value": "5"}}},
                    {"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                ],
            },
            "status": {
                "currentReplicas": 1,
                "currentMetrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "current": {"averageUtilization": 40, "averageValue": "4m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}],
            },
        });
        let mut scaler = v2.clone();
        crate::convert(&mut scaler, "autoscaling/v1");
        expect![[r#"
            {
              "apiVersion": "autoscaling/v1",
              "kind": "HorizontalPodAutoscaler",
              "metadata": {
                "annotations": {
                  "autoscaling.alpha.kubernetes.io/behavior": "{\"ScaleUp\":{\"SelectPolicy\":\"Max\"}}",
                  "autoscaling.alpha.kubernetes.io/conditions": "[{\"status\":\"True\",\"type\":\"AbleToScale\"}]",
                  "autoscaling.alpha.kubernetes.io/current-metrics": "[{\"resource\":{\"currentAverageUtilization\":40,\"currentAverageValue\":\"4m\",\"name\":\"cpu\"},\"type\":\"Resource\"}]",
                  "autoscaling.alpha.kubernetes.io/metrics": "[{\"pods\":{\"metricName\":\"load\",\"targetAverageValue\":\"10\"},\"type\":\"Pods\"},{\"object\":{\"metricName\":\"hits\",\"target\":{\"kind\":\"Service\",\"name\":\"s\"},\"targetValue\":\"5\"},\"type\":\"Object\"}]"
                },
                "name": "web"
              },
              "spec": {
                "maxReplicas": 5,
                "targetCPUUtilizationPercentage": 50
              },
              "status": {
                "currentCPUUtilizationPercentage": 40,
                "currentReplicas": 1
              }
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&scaler).unwrap());
        crate::convert(&mut scaler, "autoscaling/v2");
        assert_eq!(scaler, v2);
    }
}
