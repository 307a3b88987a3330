//! Status writes: only what changed, only when something did.

use api::{ObjectMeta, Resource, Value};
use serde_json::{Map, json};

use crate::plan::Patch;

/// The patch that brings the fields of `wanted` into `current`, or `None` when they say the same already.
///
/// Fields that `wanted` does not name stay as they are. Absent and zero values are the same, as they are in the API's
/// own types.
pub fn patch(resource: &'static Resource, metadata: &ObjectMeta, current: &Value, wanted: Value) -> Option<Patch> {
    let Value::Object(wanted) = wanted else { return None };
    let mut changes = Map::new();
    for (field, value) in wanted {
        let known = &current[field.as_str()];
        if known != &value && !(is_zero(known) && is_zero(&value)) {
            changes.insert(field, if is_droppable(&value) { Value::Null } else { value });
        }
    }
    if changes.is_empty() {
        return None;
    }
    let mut patch = Patch::new(resource, metadata, json!({"status": changes}))
        .at_revision(metadata)
        .by_update();
    patch.subresource = "status";
    Some(patch)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        _ => is_droppable(value),
    }
}

/// Empty lists and maps are removed rather than written; zero numbers are written, as some are required.
fn is_droppable(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
