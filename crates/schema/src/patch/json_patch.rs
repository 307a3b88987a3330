//! JSON patch, RFC 6902, with the habits of the library upstream uses: negative indexes count from the end, and
//! replacing a key that does not exist adds it.

use super::PatchError;
use crate::{Value, encode_json};

/// More operations than this are refused before any is tried.
pub const MAX_JSON_PATCH_OPERATIONS: usize = 10_000;

/// What copies may add to an object, in encoded bytes.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies the operations in order; the document is unchanged if one fails.
pub fn json_patch(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            go_kind(patch)
        )));
    };
    if operations.len() > MAX_JSON_PATCH_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_JSON_PATCH_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut patched = document.clone();
    let mut copied_bytes = 0;
    for operation in operations {
        if !operation.is_object() {
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {} into Go value of type jsonpatch.Operation",
                go_kind(operation)
            )));
        }
        apply(&mut patched, operation, &mut copied_bytes).map_err(PatchError::DoesNotApply)?;
    }
    Ok(patched)
}

fn apply(document: &mut Value, operation: &Value, copied_bytes: &mut usize) -> Result<(), String> {
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match operation.get("op").and_then(Value::as_str).unwrap_or("unknown") {
        "add" => {
            let path = path_of(operation, "path").map_err(|_| "add operation failed to decode path: missing value")?;
            let (parent, key) = parent_of(document, path).ok_or_else(|| {
                format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            add(parent, &key, value()).map_err(|error| format!("error in add for path: '{path}': {error}"))
        }
        "remove" => {
            let path =
                path_of(operation, "path").map_err(|_| "remove operation failed to decode path: missing value")?;
            let (parent, key) = parent_of(document, path).ok_or_else(|| {
                format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            match remove(parent, &key) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("error in remove for path: '{path}': {error}")),
            }
        }
        "replace" => replace(document, operation, value()),
        "move" => move_value(document, operation),
        "copy" => copy_value(document, operation, copied_bytes),
        "test" => test(document, operation, operation.get("value")),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn replace(document: &mut Value, operation: &Value, value: Value) -> Result<(), String> {
    let path =
        path_of(operation, "path").map_err(|error| format!("replace operation failed to decode path: {error}"))?;
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent_of(document, path)
        .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: missing value"))?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
            Ok(())
        }
        Value::Array(items) => {
            let index = existing_index(items, &key)
                .map_err(|_| format!("replace operation does not apply: doc is missing key: {path}: missing value"))?;
            items[index] = value;
            Ok(())
        }
        _ => Err(format!(
            "replace operation does not apply: doc is missing path: {path}: missing value"
        )),
    }
}

fn move_value(document: &mut Value, operation: &Value) -> Result<(), String> {
    let from = path_of(operation, "from").map_err(|error| format!("move operation failed to decode from: {error}"))?;
    let (parent, key) = parent_of(document, from)
        .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: missing value"))?;
    let value = remove(parent, &key).map_err(|error| format!("error in move for path: '{key}': {error}"))?;
    let path = path_of(operation, "path").map_err(|error| format!("move operation failed to decode path: {error}"))?;
    let (parent, key) = parent_of(document, path).ok_or_else(|| {
        format!("move operation does not apply: doc is missing destination path: {path}: missing value")
    })?;
    add(parent, &key, value).map_err(|error| format!("error in move for path: '{path}': {error}"))
}

fn copy_value(document: &mut Value, operation: &Value, copied_bytes: &mut usize) -> Result<(), String> {
    let from = path_of(operation, "from").map_err(|error| format!("copy operation failed to decode from: {error}"))?;
    let (parent, key) = parent_of(document, from)
        .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: missing value"))?;
    let value = get(parent, &key).map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
    let value = value.cloned().unwrap_or(Value::Null);
    let path = path_of(operation, "path").map_err(|_| "copy operation failed to decode path: missing value")?;
    let (parent, key) = parent_of(document, path).ok_or_else(|| {
        format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
    })?;
    *copied_bytes += encode_json(&value).len();
    if *copied_bytes > MAX_COPIED_BYTES {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}"
        ));
    }
    add(parent, &key, value).map_err(|error| format!("error while adding value during copy: {error}"))
}

fn test(document: &mut Value, operation: &Value, expected: Option<&Value>) -> Result<(), String> {
    let path = path_of(operation, "path").map_err(|error| format!("test operation failed to decode path: {error}"))?;
    let expected = expected.unwrap_or(&Value::Null);
    let holds = if path.is_empty() {
        document == expected
    } else {
        let (parent, key) = parent_of(document, path)
            .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: missing value"))?;
        let found = get(parent, &key).map_err(|error| format!("error in test for path: '{path}': {error}"))?;
        found.unwrap_or(&Value::Null) == expected
    };
    if holds {
        Ok(())
    } else {
        Err(format!("testing value {path} failed: test failed"))
    }
}

fn path_of<'a>(operation: &'a Value, name: &str) -> Result<&'a str, String> {
    match operation.get(name) {
        Some(Value::String(path)) => Ok(path),
        None | Some(Value::Null) if name == "path" => Err("operation missing path field: missing value".to_owned()),
        None | Some(Value::Null) => Err("operation, missing from field: missing value".to_owned()),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go value of type string",
            go_kind(other)
        )),
    }
}

/// The container that holds what the pointer names, and the last token of the pointer.
fn parent_of<'a>(document: &'a mut Value, pointer: &str) -> Option<(&'a mut Value, String)> {
    let mut tokens = pointer.split('/').skip(1);
    let mut token = tokens.next()?;
    let mut parent = document;
    for next in tokens {
        let key = unescape(token);
        parent = match parent {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(items) => {
                let index = existing_index(items, &key).ok()?;
                &mut items[index]
            }
            _ => return None,
        };
        token = next;
    }
    (parent.is_object() || parent.is_array()).then(|| (parent, unescape(token)))
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn get<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match parent {
        Value::Object(map) => Ok(map.get(key)),
        Value::Array(items) => existing_index(items, key).map(|index| items.get(index)),
        _ => Ok(None),
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let number =
                parse_index(key).map_err(|error| format!("value was not a proper array index: '{key}': {error}"))?;
            let index = resolve_index(number, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err("missing value".to_owned()),
    }
    Ok(())
}

fn remove(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Object(map) => map
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(items) => {
            let index = existing_index(items, key)?;
            Ok(items.remove(index))
        }
        _ => Err("missing value".to_owned()),
    }
}

fn existing_index(items: &[Value], key: &str) -> Result<usize, String> {
    resolve_index(parse_index(key)?, items.len())
}

fn parse_index(key: &str) -> Result<i64, String> {
    key.parse()
        .map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", crate::go::quote(key)))
}

/// Negative numbers count from the end.
fn resolve_index(number: i64, length: usize) -> Result<usize, String> {
    let from_end = if number < 0 { length as i64 } else { 0 };
    match usize::try_from(number.saturating_add(from_end)) {
        Ok(index) if index < length => Ok(index),
        _ => Err(format!(
            "Unable to access invalid index: {number}: invalid index referenced"
        )),
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
