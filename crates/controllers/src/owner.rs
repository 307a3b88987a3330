//! Owner references.

use api::{ObjectMeta, Resource, Value};
use serde_json::json;

/// The reference by which `owner` manages an object.
pub fn controller_reference(resource: &Resource, owner: &ObjectMeta) -> Value {
    json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
