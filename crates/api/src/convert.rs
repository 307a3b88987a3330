//! Conversion between the served versions of one kind.

use serde_json::{Map, json};

use crate::Value;

/// Events under their two names: core first, `events.k8s.io` second.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// Rewrites an object to another version of its kind. Objects that have only one version just take the name.
pub fn convert(object: &mut Value, api_version: &str) {
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if from == api_version {
        return;
    }
    let Some(fields) = object.as_object_mut() else { return };
    match (fields.get("kind").and_then(Value::as_str), api_version) {
        (Some("Event"), "events.k8s.io/v1") => rename(fields, EVENT_FIELDS.iter().copied()),
        (Some("Event"), "v1") => rename(fields, EVENT_FIELDS.iter().map(|(core, events)| (*events, *core))),
        (Some("HorizontalPodAutoscaler"), "autoscaling/v1") => autoscaler_to_v1(fields),
        (Some("HorizontalPodAutoscaler"), "autoscaling/v2") => autoscaler_to_v2(fields),
        _ => {}
    }
    fields.insert("apiVersion".to_owned(), api_version.into());
}

fn rename<'a>(fields: &mut Map<String, Value>, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

/// Version 1 knows one metric, the use of CPU; the others travel in an annotation.
const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";

fn autoscaler_to_v1(fields: &mut Map<String, Value>) {
    let Some(metrics) = fields
        .get_mut("spec")
        .and_then(Value::as_object_mut)
        .and_then(|spec| spec.remove("metrics"))
    else {
        return;
    };
    let (cpu, others): (Vec<Value>, Vec<Value>) = metrics
        .as_array()
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .partition(is_cpu_utilization);
    if let Some(first) = cpu.first() {
        fields["spec"]["targetCPUUtilizationPercentage"] = first["resource"]["target"]["averageUtilization"].clone();
    }
    if !others.is_empty() {
        let annotations = &mut fields["metadata"]["annotations"];
        annotations[METRICS_ANNOTATION] = Value::from(others).to_string().into();
    }
}

fn autoscaler_to_v2(fields: &mut Map<String, Value>) {
    let mut metrics: Vec<Value> = fields
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut)
        .and_then(|annotations| annotations.remove(METRICS_ANNOTATION))
        .and_then(|text| serde_json::from_str(text.as_str()?).ok())
        .unwrap_or_default();
    let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(percentage) = spec.remove("targetCPUUtilizationPercentage") {
        let target = json!({ "type": "Utilization", "averageUtilization": percentage });
        metrics.push(json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } }));
    }
    if !metrics.is_empty() {
        spec.insert("metrics".to_owned(), metrics.into());
    }
}

fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"]["target"]["type"] == "Utilization"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_everything_on_its_way_there_and_back() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "count": 2, "message": "m", "involvedObject": { "name": "p" },
            "reason": "R", "type": "Normal",
        });
        let mut event = core.clone();
        convert(&mut event, "events.k8s.io/v1");
        assert_eq!(event["note"], "m");
        assert_eq!(event["regarding"]["name"], "p");
        convert(&mut event, "v1");
        assert_eq!(event, core);
    }

    #[test]
    fn an_autoscaler_keeps_its_metrics_through_version_1() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "annotations": {} },
            "spec": { "metrics": [
                { "type": "Pods", "pods": { "metric": { "name": "m" } } },
                { "type": "Resource", "resource": {
                    "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } },
            ] },
        });
        let mut scaler = v2.clone();
        convert(&mut scaler, "autoscaling/v1");
        assert_eq!(scaler["spec"]["targetCPUUtilizationPercentage"], 50);
        convert(&mut scaler, "autoscaling/v2");
        assert_eq!(scaler, v2);
    }
}
