//! LimitRange: bounds and defaults for what pods and claims of a namespace ask for.

use crate::names::label_key;
use crate::pod_spec::resources::read;
use crate::pod_spec::{validate_any_resource, validate_resource};
use crate::{FieldError, Fields, Path, Problems, Resource, Rules, Value, repeats};

pub static LIMIT_RANGE: Resource = Resource::namespaced("", "v1", "LimitRange", "limitranges", "limitrange")
    .short(&["limits"])
    .with_rules(&LimitRangeRules);

struct LimitRangeRules;

impl Rules for LimitRangeRules {
    fn default(&self, range: &mut Value) {
        for limit in range.ensure("spec").list_mut("limits") {
            if limit.text("type") == "Container" {
                default_container_limit(limit);
            }
        }
    }

    /// A range that has no name gets one of its own.
    fn prepare_create(&self, range: &mut Value) {
        let uid = range["metadata"].text("uid").to_owned();
        range.ensure("metadata").fill("name", uid);
    }

    fn validate(&self, range: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let limits = range["spec"].list("limits");
        let repeated = repeats(limits.iter().map(|limit| limit.text("type")));
        for (index, limit) in limits.iter().enumerate() {
            let path = Path::new("spec").child("limits").index(index);
            let kind = limit.text("type");
            validate_type(kind, &path, &mut problems);
            if repeated[index] {
                problems.duplicate(&path, "type", kind);
            }
            validate_limit(limit, &path, &mut problems);
        }
        problems.into_vec()
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

/// The most is the default limit, the default limit the default request; the least comes last.
fn default_container_limit(limit: &mut Value) {
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let Some(amounts) = limit[from].as_object().cloned() else {
            continue;
        };
        for (resource, quantity) in amounts {
            limit.ensure(to).fill(&resource, quantity);
        }
    }
}

const TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];
const AMOUNTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

fn validate_type(kind: &str, path: &Path, problems: &mut Problems) {
    let found = label_key(kind);
    if found.is_empty() && !kind.contains('/') && !TYPES.contains(&kind) {
        problems.invalid(path, "type", kind, "must be a standard limit type or fully qualified");
    }
    problems.form(path, "type", kind, found);
}

fn validate_limit(limit: &Value, path: &Path, problems: &mut Problems) {
    let kind = limit.text("type");
    for field in AMOUNTS {
        if kind == "Pod" && matches!(field, "default" | "defaultRequest") {
            if limit.entries(field).next().is_some() {
                problems.forbidden(path, field, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (resource, _) in limit.entries(field) {
            let path = path.child(field).key(resource);
            match kind {
                "Pod" | "Container" => validate_resource(resource, &path, problems),
                _ => validate_any_resource(resource, &path, problems),
            }
        }
    }
    let storage = |field: &str| limit[field].has("storage");
    if kind == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        problems.required(path, "limits", detail);
    }
    validate_order(limit, path, problems);
}

/// From the least over the default request and the default limit to the most, amounts only grow.
fn validate_order(limit: &Value, path: &Path, problems: &mut Problems) {
    let title = |field: &str| match field {
        "min" => "min",
        "max" => "max",
        "defaultRequest" => "default request",
        _ => "default",
    };
    let pairs = [
        ("min", "max", "min"),
        ("min", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", "defaultRequest"),
        ("defaultRequest", "default", "defaultRequest"),
        ("min", "default", "default"),
        ("default", "max", "default"),
    ];
    for (low, high, blamed) in pairs {
        let (lows, highs) = (read(limit, low), read(limit, high));
        for (resource, least) in &lows {
            let Some(most) = highs.get(resource).filter(|most| least > *most) else {
                continue;
            };
            let high_title = if (low, high) == ("defaultRequest", "default") {
                "default limit"
            } else {
                title(high)
            };
            let detail = format!("{} value {least} is greater than {high_title} value {most}", title(low));
            // Upstream shows the one of the two that is not the default.
            let shown = match (low, high) {
                ("min", "default") => low,
                ("default", "max") => high,
                _ => blamed,
            };
            let value = limit[shown].text(resource).to_owned();
            problems.invalid(&path.child(blamed).key(resource), "", value, detail);
        }
    }
    validate_ratios(limit, path, problems);
}

/// How many times a request a limit may be; no more than the most is of the least.
fn validate_ratios(limit: &Value, path: &Path, problems: &mut Problems) {
    let (least, most) = (read(limit, "min"), read(limit, "max"));
    for (resource, ratio) in &read(limit, "maxLimitRequestRatio") {
        let path = path.child("maxLimitRequestRatio").key(resource);
        if ratio.milli_value() < 1000 {
            let detail = format!("ratio {ratio} is less than 1");
            problems.invalid(&path, "", ratio.to_string(), detail);
        }
        let (Some(least), Some(most)) = (least.get(resource), most.get(resource)) else {
            continue;
        };
        let bound = most.milli_value() as f64 / least.milli_value() as f64;
        if ratio.milli_value() as f64 / 1000.0 > bound {
            let detail = format!("ratio {ratio} is greater than max/min = {bound:.6}");
            problems.invalid(&path, "", ratio.to_string(), detail);
        }
    }
}
