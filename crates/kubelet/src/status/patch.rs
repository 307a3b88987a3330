//! The smallest strategic merge patch that turns the status in the API into the computed one.

use serde_json::{Map, Value, json};

use super::PodStatus;

/// The fields of a status that the kubelet owns; only these are ever written or cleared.
const OWNED: &[&str] = &[
    "observedGeneration",
    "phase",
    "message",
    "reason",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "qosClass",
    "allocatedResources",
    "resources",
];

/// Conditions of the kubelet's that are taken away when they no longer hold.
const PASSING: &[&str] = &["PodResizePending", "PodResizeInProgress"];

/// The lists that strategic merge patch merges by key, so that what is no longer in them must be deleted by name.
const MERGED_BY_IP: &[&str] = &["hostIPs", "podIPs"];

/// Objects, of which strategic merge patch keeps the members that a patch does not name: they are replaced as a whole.
const MERGED_BY_MEMBER: &[&str] = &["allocatedResources", "resources"];

/// The patch for a pod's status, or none if the API has it already. Naming the UID makes the patch fail on a
/// namesake.
pub fn patch(uid: &str, current: &Value, wanted: &PodStatus) -> Option<Value> {
    let Ok(Value::Object(wanted)) = serde_json::to_value(wanted) else {
        return None;
    };
    let mut status = Map::new();
    for field in OWNED {
        let (now, then) = (wanted.get(*field), current.get(*field));
        if now.unwrap_or(&Value::Null) == then.unwrap_or(&Value::Null) {
            continue;
        }
        let value = match (now, then) {
            (_, then) if MERGED_BY_IP.contains(field) => replace_by_ip(then, now),
            (Some(Value::Object(now)), Some(Value::Object(_))) if MERGED_BY_MEMBER.contains(field) => {
                let mut now = now.clone();
                now.insert("$patch".to_owned(), json!("replace"));
                Value::Object(now)
            }
            (now, _) => now.cloned().unwrap_or(Value::Null),
        };
        status.insert((*field).to_owned(), value);
    }
    let conditions = changed_conditions(current, &wanted);
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    (!status.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": status}))
}

/// A list merged by `ip` is replaced by an explicit directive.
fn replace_by_ip(_then: Option<&Value>, now: Option<&Value>) -> Value {
    let items = now.and_then(Value::as_array).cloned().unwrap_or_default();
    let directive = json!({"$patch": "replace"});
    Value::Array(items.into_iter().chain([directive]).collect())
}

fn changed_conditions(current: &Value, wanted: &Map<String, Value>) -> Vec<Value> {
    let current = current.get("conditions").and_then(Value::as_array);
    let wanted = wanted.get("conditions").and_then(Value::as_array);
    let same = |condition: &Value| {
        let mut known = current.into_iter().flatten();
        known.any(|known| known["type"] == condition["type"] && covers(known, condition))
    };
    let changed = wanted.into_iter().flatten().filter(|condition| !same(condition));
    let is_over = |known: &&Value| {
        let kind = &known["type"];
        let passing = PASSING.iter().any(|passing| kind == passing);
        passing && !wanted.into_iter().flatten().any(|condition| condition["type"] == *kind)
    };
    let over = current.into_iter().flatten().filter(is_over);
    let over = over.map(|known| json!({"type": known["type"], "$patch": "delete"}));
    changed
        .map(|condition| with_cleared(condition.clone()))
        .chain(over)
        .collect()
}

/// Whether a condition says what it should, whatever else it says.
fn covers(known: &Value, wanted: &Value) -> bool {
    let field = |value: &Value, name: &str| value.get(name).cloned().unwrap_or(Value::Null);
    let fields = [
        "status",
        "reason",
        "message",
        "observedGeneration",
        "lastTransitionTime",
    ];
    fields.iter().all(|name| field(known, name) == field(wanted, name))
}

/// Conditions are merged, so a reason that no longer holds has to be cleared by name.
fn with_cleared(mut condition: Value) -> Value {
    if let Value::Object(fields) = &mut condition {
        for name in ["reason", "message"] {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    condition
}
