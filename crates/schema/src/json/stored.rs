//! The form that objects have after they were stored as protobuf, which knows no list that is there and empty.

use crate::model::{Schema, Shape};
use crate::{TypeRef, Value};

/// Makes null of every list that is empty and that Go writes all the same.
pub fn forget_empty_lists(ty: TypeRef<'_>, value: &mut Value) {
    forget(ty.schema, Shape::Struct(ty.id), value);
}

fn forget(schema: &Schema, shape: Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::List(_), value) if value.as_array().is_some_and(Vec::is_empty) => *value = Value::Null,
        (Shape::Struct(id), Value::Object(fields)) => {
            let ty = schema.get(id);
            for (name, value) in fields {
                if let Some(position) = ty.position(name) {
                    forget(schema, ty.fields[position].shape, value);
                }
            }
        }
        (Shape::List(element), Value::Array(items)) => {
            let element = schema.element(element);
            items.iter_mut().for_each(|item| forget(schema, element, item));
        }
        (Shape::Map(element), Value::Object(entries)) => {
            let element = schema.element(element);
            entries.values_mut().for_each(|value| forget(schema, element, value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_lists_are_gone_and_raw_json_is_left_alone() {
        let ty = crate::builtin().object("storage.k8s.io/v1", "CSINode");
        let mut node = json!({"spec": {"drivers": [{"name": "a", "topologyKeys": []}]}});
        forget_empty_lists(ty.expect("a built-in type"), &mut node);
        assert_eq!(
            node,
            json!({"spec": {"drivers": [{"name": "a", "topologyKeys": null}]}})
        );

        let ty = crate::builtin().object("apps/v1", "ControllerRevision");
        let mut revision = json!({"data": {"list": []}});
        forget_empty_lists(ty.expect("a built-in type"), &mut revision);
        assert_eq!(revision, json!({"data": {"list": []}}));
    }
}
