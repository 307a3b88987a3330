//! The metadata of custom resources and of the objects embedded in them, which has the same form as everywhere.

use super::Structural;
use crate::{FieldError, FieldProblem, Path, Value};

/// What embedded objects must have.
const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];

/// Brings `metadata` of the object, and of those embedded in it, into form. Returns the paths of unknown fields, or why
/// a field cannot be read.
pub fn coerce(schema: &Structural, object: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    coerce_one(&Path::default(), object, &mut unknown)?;
    embedded(schema, &Path::default(), object, &mut unknown)?;
    Ok(unknown)
}

fn embedded(schema: &Structural, path: &Path, value: &mut Value, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let Some(below) = schema.properties.get(key).or(schema.additional_schema()) else {
                    continue;
                };
                let path = path.child(key);
                if below.embedded_resource && value.is_object() {
                    coerce_one(&path, value, unknown)?;
                }
                embedded(below, &path, value, unknown)?;
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.items.as_deref() else {
                return Ok(());
            };
            for (index, value) in items.iter_mut().enumerate() {
                let path = path.index(index);
                if below.embedded_resource && value.is_object() {
                    coerce_one(&path, value, unknown)?;
                }
                embedded(below, &path, value, unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_one(path: &Path, object: &mut Value, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    for field in TYPE_FIELDS {
        if object.get(field).is_some_and(|value| !value.is_string()) {
            let value = object[field].clone();
            return Err(wrong_type(&path.child(field), value, "must be a string"));
        }
    }
    let Some(metadata) = object.get_mut("metadata") else {
        return Ok(());
    };
    let path = path.child("metadata");
    if !metadata.is_object() {
        return Err(wrong_type(&path, metadata.clone(), "must be an object"));
    }
    let Some(ty) = schema::builtin().named("meta/v1.ObjectMeta") else {
        return Ok(());
    };
    let had_timestamp = metadata.get("creationTimestamp").is_some_and(|value| !value.is_null());
    match schema::normalize(ty, metadata) {
        Ok(problems) => unknown.extend(problems.iter().filter_map(|problem| unknown_path(problem, &path))),
        Err(error) => return Err(FieldError::invalid(&path, Value::Null, error.to_string())),
    }
    if !had_timestamp && let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("creationTimestamp");
    }
    Ok(())
}

/// The path in `unknown field "a.b"`, below the metadata.
fn unknown_path(problem: &str, metadata: &Path) -> Option<String> {
    let path = problem.strip_prefix("unknown field \"")?.strip_suffix('"')?;
    Some(metadata.child(path).to_string())
}

fn wrong_type(path: &Path, value: Value, detail: &str) -> FieldError {
    FieldError::new(FieldProblem::TypeInvalid, path, value, detail)
}
