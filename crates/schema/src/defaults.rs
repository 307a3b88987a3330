//! The defaults that the fact table states. Those that depend on more than one field belong to the kinds.

use serde_json::Map;

use crate::Value;
use crate::model::{Schema, Shape, TypeId};
use crate::view::TypeRef;

/// Fills in the table's defaults wherever a struct is present and the field is not. An empty value counts as missing
/// where the field cannot tell empty from absent.
pub fn apply_table_defaults(ty: TypeRef<'_>, value: &mut Value) {
    apply(ty.schema, Shape::Struct(ty.id), value);
}

fn apply(schema: &Schema, shape: Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(map)) => apply_struct(schema, id, map),
        (Shape::List(element), Value::Array(items)) => {
            let element = schema.element(element);
            items.iter_mut().for_each(|item| apply(schema, element, item));
        }
        (Shape::Map(element), Value::Object(map)) => {
            let element = schema.element(element);
            map.values_mut().for_each(|item| apply(schema, element, item));
        }
        _ => {}
    }
}

fn apply_struct(schema: &Schema, id: TypeId, map: &mut Map<String, Value>) {
    let ty = schema.get(id);
    for (name, value) in map.iter_mut() {
        if let Some(position) = ty.position(name) {
            apply(schema, ty.fields[position].shape, value);
        }
    }
    for field in ty.fields.iter() {
        let Some(default) = &field.default else { continue };
        let missing = match map.get(&*field.name) {
            None | Some(Value::Null) => true,
            Some(value) => !field.pointer && *value == crate::json::zero(schema, field.shape),
        };
        if missing && !field.omits(default) {
            map.insert(field.name.to_string(), Value::clone(default));
        }
    }
}
