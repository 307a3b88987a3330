//! Conditions in a status, edited in place so that fields and conditions of others stay as they are.

use api::{Fields, Value};
use client::when::Moment;
use serde_json::json;

/// What a controller wants a condition to say.
#[derive(Clone, Debug)]
pub struct Condition<'a> {
    pub kind: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub message: String,
}

pub fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition.text("type") == kind)
}

pub fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| condition.text("type") != kind);
}

/// Writes the condition; the transition time moves only when its status does. Returns it for further edits.
pub fn set<'a>(conditions: &'a mut Vec<Value>, wanted: &Condition<'_>, now: Moment) -> &'a mut Value {
    let position = conditions
        .iter()
        .position(|condition| condition.text("type") == wanted.kind);
    let index = position.unwrap_or_else(|| {
        conditions.push(json!({"type": wanted.kind}));
        conditions.len() - 1
    });
    let condition = &mut conditions[index];
    if condition.text("status") != wanted.status {
        condition["lastTransitionTime"] = now.to_time().into();
    }
    for (field, value) in [
        ("status", wanted.status),
        ("reason", wanted.reason),
        ("message", &wanted.message),
    ] {
        condition[field] = value.into();
    }
    condition
}

/// Whether the condition already has the wanted status and reason.
pub fn says(conditions: &[Value], wanted: &Condition<'_>) -> bool {
    find(conditions, wanted.kind)
        .is_some_and(|known| known.text("status") == wanted.status && known.text("reason") == wanted.reason)
}
