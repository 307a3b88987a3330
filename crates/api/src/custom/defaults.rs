//! Filling in what a schema says of fields that are not there.

use super::Structural;
use crate::Value;

/// Sets the defaults of absent fields. A null where the schema allows none counts as absent: it takes the default or
/// goes.
pub fn apply(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let missing = match map.get(name) {
                    None => true,
                    Some(Value::Null) => !property.nullable,
                    Some(_) => false,
                };
                match (missing, &property.default) {
                    (true, Some(default)) => {
                        map.insert(name.clone(), default.clone());
                    }
                    (true, None) => {
                        map.remove(name);
                    }
                    (false, _) => {}
                }
            }
            for (name, value) in map.iter_mut() {
                match schema.properties.get(name) {
                    Some(property) => apply(property, value),
                    None => {
                        if let Some(additional) = schema.additional_schema() {
                            replace_null(additional, value);
                            apply(additional, value);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for item in items {
                    replace_null(schema, item);
                    apply(schema, item);
                }
            }
        }
        _ => {}
    }
}

fn replace_null(schema: &Structural, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
}
