//! Event: something that happened to an object, under its two names.

use std::time::Duration;

use crate::names::{label_key, path_segment};
use crate::print;
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static EVENT: Resource = Resource::namespaced("", "v1", "Event", "events", "event")
    .short(&["ev"])
    .with_unqualified_finalizers()
    .converting_field_labels()
    .kept_for(TIME_TO_LIVE)
    .without_update_traces()
    .with_rules(&EventRules);

/// Events of either group are the same objects, and those of the core group to upstream's rules.
pub static EVENTS_EVENT: Resource = Resource::namespaced("events.k8s.io", "v1", "Event", "events", "event")
    .short(&["ev"])
    .stored_as("", "v1")
    .converting_field_labels()
    .kept_for(TIME_TO_LIVE)
    .without_update_traces()
    .reporting_errors_in("")
    .with_rules(&EventsEventRules);

/// How long events are kept, as upstream does by default.
const TIME_TO_LIVE: Duration = Duration::from_secs(3600);

struct EventRules;
struct EventsEventRules;

impl Rules for EventRules {
    fn create_on_update(&self) -> bool {
        true
    }

    fn validate(&self, event: &Value) -> Vec<FieldError> {
        validate(event, "reportingComponent").into_vec()
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
    }

    fn field(&self, event: &Value, path: &str) -> Option<String> {
        if let Some(field) = path.strip_prefix("involvedObject.") {
            return reference(&event["involvedObject"], field);
        }
        match path {
            "reason" | "type" | "reportingComponent" => Some(event.text(path).to_owned()),
            "source" => Some(match event["source"].text("component") {
                "" => event.text("reportingComponent").to_owned(),
                component => component.to_owned(),
            }),
            _ => None,
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, event: &Value, now: i64) -> Vec<Value> {
        cells(event, now)
    }
}

impl Rules for EventsEventRules {
    fn create_on_update(&self) -> bool {
        true
    }

    fn validate(&self, event: &Value) -> Vec<FieldError> {
        let mut core = event.clone();
        crate::convert(&mut core, "v1");
        let mut problems = validate(&core, "reportingController");
        validate_series(event, &mut problems);
        problems.into_vec()
    }

    /// Of an event nothing changes but how often it happened.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let core = |event: &Value| {
            let mut core = event.clone();
            crate::convert(&mut core, "v1");
            core
        };
        let (new, old) = (core(new), core(old));
        let mut problems = Problems::default();
        let path = Path::default();
        for (field, shown) in [
            ("involvedObject", "involvedObject"),
            ("reason", "reason"),
            ("message", "message"),
            ("source", "source"),
            ("firstTimestamp", "firstTimestamp"),
            ("lastTimestamp", "lastTimestamp"),
            ("count", "count"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            let text = |event: &Value| match &event[field] {
                Value::Null if field != "eventTime" && field != "related" => Value::from(""),
                other => other.clone(),
            };
            if text(&new) != text(&old) {
                problems.invalid(&path, shown, text(&new), "field is immutable");
            }
        }
        problems.into_vec()
    }

    /// What only the older form has must not be set in the newer one.
    fn validate_create(&self, event: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::default();
        if !event.has("eventTime") {
            problems.required(&path, "eventTime", "");
        }
        if !matches!(event.text("type"), "Normal" | "Warning") {
            problems.invalid(&path, "type", "", format!("has invalid value: {}", event.text("type")));
        }
        for (field, core) in [
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
        ] {
            if event.has(field) {
                problems.invalid(&path, core, "", "needs to be unset");
            }
        }
        if event.number("deprecatedCount") != 0 {
            problems.invalid(&path, "count", "", "needs to be unset");
        }
        let source = &event["deprecatedSource"];
        if !source.text("component").is_empty() || !source.text("host").is_empty() {
            problems.invalid(&path, "source", "", "needs to be unset");
        }
        problems.into_vec()
    }

    fn field(&self, event: &Value, path: &str) -> Option<String> {
        if let Some(field) = path.strip_prefix("regarding.") {
            return reference(&event["regarding"], field);
        }
        match path {
            "reason" | "type" | "reportingController" => Some(event.text(path).to_owned()),
            _ => None,
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, event: &Value, now: i64) -> Vec<Value> {
        let mut core = event.clone();
        crate::convert(&mut core, "v1");
        cells(&core, now)
    }
}

/// A series is more than one.
fn validate_series(event: &Value, problems: &mut Problems) {
    let (series, path) = (&event["series"], Path::new("series"));
    if !series.is_object() {
        return;
    }
    if series.number("count") < 2 {
        problems.invalid(&path, "count", "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        problems.required(&path, "lastObservedTime", "");
    }
}

const NAME_BYTES: usize = 128;
const NOTE_BYTES: usize = 1024;

/// An event with a time of its own comes from the newer interface, which asks for more.
fn validate(event: &Value, controller_field: &str) -> Problems {
    let mut problems = Problems::default();
    let path = Path::default();
    let of = event["involvedObject"].text("namespace");
    let namespace = event["metadata"].text("namespace");
    let is_new = event.has("eventTime");
    let fits = match (is_new, of) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, of) => of == namespace,
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        let path = Path::new("involvedObject");
        problems.invalid(&path, "namespace", of, "does not match event.namespace");
    }
    if !is_new {
        return problems;
    }
    let controller = event.text("reportingComponent");
    if controller.is_empty() {
        problems.required(&path, controller_field, "");
    }
    problems.form(&path, controller_field, controller, label_key(controller));
    for field in ["reportingInstance", "action", "reason"] {
        problems.needs(event, &path, field);
    }
    for (field, most) in [
        ("reportingInstance", NAME_BYTES),
        ("action", NAME_BYTES),
        ("reason", NAME_BYTES),
        ("message", NOTE_BYTES),
    ] {
        if event.text(field).len() > most {
            problems.invalid(&path, field, "", format!("can have at most {most} characters"));
        }
    }
    problems
}

fn reference(reference: &Value, field: &str) -> Option<String> {
    let known = [
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    ];
    known.contains(&field).then(|| reference.text(field).to_owned())
}

fn cells(event: &Value, now: i64) -> Vec<Value> {
    let first = match event.has("firstTimestamp") {
        true => print::since(&event["firstTimestamp"], now),
        false => print::since(&event["eventTime"], now),
    };
    let series = &event["series"];
    let (last, count) = match (series.is_object(), event.has("lastTimestamp")) {
        (true, _) => (print::since(&series["lastObservedTime"], now), series.number("count")),
        (false, true) => (print::since(&event["lastTimestamp"], now), event.number("count").max(1)),
        (false, false) => (first.clone(), event.number("count").max(1)),
    };
    let object = &event["involvedObject"];
    let kind = object.text("kind").to_lowercase();
    let target = match object.text("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        event.text("type").into(),
        event.text("reason").into(),
        target.into(),
        object.text("fieldPath").into(),
        source(event).into(),
        event.text("message").trim().into(),
        first.into(),
        count.into(),
        print::name(event),
    ]
}

fn source(event: &Value) -> String {
    let either = |first: &str, second: &str| {
        let text = if first.is_empty() { second } else { first };
        text.to_owned()
    };
    let component = either(event["source"].text("component"), event.text("reportingComponent"));
    match either(event["source"].text("host"), event.text("reportingInstance")).as_str() {
        "" => component,
        host => format!("{component}, {host}"),
    }
}

const COLUMNS: &[Column] = &[
    print::text("Last Seen", "Time since it last happened."),
    print::text("Type", "Normal or Warning."),
    print::text("Reason", "What happened, in one word."),
    print::text("Object", "What it happened to."),
    print::text("Subobject", "The part that it happened to.").wide(),
    print::text("Source", "Who tells.").wide(),
    print::text("Message", "What happened."),
    print::text("First Seen", "Time since it first happened.").wide(),
    print::text("Count", "How often it happened.").wide(),
    print::NAME.wide(),
];

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn both_names_show_the_same_line() {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"},
            "type": "Normal", "reason": "Scheduled", "message": "Assigned to one\n", "count": 3,
            "firstTimestamp": "1970-01-01T00:00:10Z", "lastTimestamp": "1970-01-01T00:01:00Z",
            "involvedObject": {"kind": "Pod", "name": "web"}, "source": {"component": "default-scheduler"},
        });
        let line = |resource: &Resource, event: &Value| {
            let cells = resource.rules.cells(event, 100);
            cells
                .iter()
                .map(|cell| cell.to_string().replace('"', ""))
                .collect::<Vec<_>>()
                .join(" | ")
        };
        expect!["40s | Normal | Scheduled | pod/web |  | default-scheduler | Assigned to one | 90s | 3 | web.1"]
            .assert_eq(&line(&EVENT, &event));
        let mut renamed = event.clone();
        crate::convert(&mut renamed, "events.k8s.io/v1");
        assert_eq!(line(&EVENTS_EVENT, &renamed), line(&EVENT, &event));
        assert_eq!(
            EVENTS_EVENT.rules.field(&renamed, "regarding.name"),
            Some("web".to_owned())
        );
        assert_eq!(EVENT.rules.field(&event, "involvedObject.name"), Some("web".to_owned()));
        assert_eq!(EVENT.rules.field(&event, "regarding.name"), None);
    }
}
