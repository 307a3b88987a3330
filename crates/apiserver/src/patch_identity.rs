//! An object stays what it is: a patch that makes it one of another kind or version is refused.

use api::{Error, FieldError, Path, Value};
use registry::Served;

use crate::patch_type::invalid_patch;
use crate::respond::internal_package;

/// Checks `kind` and `apiVersion` after a JSON or merge patch. What another version of the same kind says is brought into
/// the version of the request.
pub fn check(served: &Served, name: &str, patched: &mut Value) -> Result<(), Error> {
    for field in ["apiVersion", "kind"] {
        let found = match &patched[field] {
            Value::Null | Value::String(_) => continue,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{field} of \
             type string"
        );
        return Err(invalid_patch(patched.to_string(), &why));
    }
    match &served.custom {
        Some(_) => check_custom(served, name, patched),
        None => check_built_in(served, name, patched),
    }
}

fn check_custom(served: &Served, name: &str, patched: &Value) -> Result<(), Error> {
    let text = |field: &str| patched[field].as_str().unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() {
        let shown = patched.to_string();
        let why = format!("Object 'Kind' is missing in '{shown}'");
        return Err(invalid_patch(shown, &why));
    }
    if api_version.is_empty() {
        let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Err(Error::internal(why));
    }
    let mut problems = Vec::new();
    for (field, found, wanted) in [
        ("kind", kind, served.resource.kind),
        ("apiVersion", api_version, served.api_version()),
    ] {
        if found != wanted {
            problems.push(FieldError::invalid(
                &Path::new(field),
                found,
                format!("must be {wanted}"),
            ));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    // Upstream names the object by the kind that it was to become.
    let mut error = Error::invalid(served.resource, name, problems);
    if let Some(rest) = error.message.strip_prefix(served.resource.kind) {
        error.message = format!("{kind}{rest}");
    }
    kind.clone_into(&mut error.details().kind);
    Err(error)
}

fn check_built_in(served: &Served, name: &str, patched: &mut Value) -> Result<(), Error> {
    let resource = served.resource;
    let text = |field: &str| patched[field].as_str().unwrap_or_default().to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let refused = |why: &str| Err(invalid_patch(patched.to_string(), why));
    // Upstream reads what has no version as an object without anything in it.
    if api_version.is_empty() {
        return Err(crate::call::nameless(name));
    }
    if api_version == served.api_version() && (kind.is_empty() || kind == resource.kind) {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    if version.contains('/') {
        return refused(&format!("unexpected GroupVersion string: {api_version}"));
    }
    let kind = if kind.is_empty() { resource.kind } else { &kind };
    if schema::builtin().kind(group, version, kind).is_none() {
        return refused(&format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    if group != resource.group || kind != resource.kind {
        let (package, target) = (internal_package(resource), resource.kind);
        return refused(&format!(
            "converting ({version}.{kind}) to ({package}.{target}): unknown conversion"
        ));
    }
    api::convert(patched, served.api_version());
    Ok(())
}
