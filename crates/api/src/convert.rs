//! Conversion between the served versions of one kind.

mod autoscaler;
mod definition;

use serde_json::Map;

pub(crate) use autoscaler::{METRICS, drop_unreadable};

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
    match (object["kind"].as_str(), api_version) {
        (Some("Event"), "events.k8s.io/v1") => rename(object, EVENT_FIELDS.iter().copied()),
        (Some("Event"), "v1") => rename(object, EVENT_FIELDS.iter().map(|(core, events)| (*events, *core))),
        (Some("CustomResourceDefinition"), "apiextensions.k8s.io/v1") => definition::to_v1(object),
        (Some("HorizontalPodAutoscaler"), "autoscaling/v1") => autoscaler::to_v1(object),
        (Some("HorizontalPodAutoscaler"), "autoscaling/v2") => autoscaler::to_v2(object),
        _ => {}
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
    }
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (from, to) in names {
        rename_field(fields, from, to);
    }
}

fn rename_field(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
