//! Who owns the fields of an object: the registry's side of server-side apply and of the tracking of plain writes.

use api::{Cause, Error, Reason, Value};
use schema::ownership::{self, ApplyError, Filter, Node, Versions, Writer};

use crate::options::{Scope, Tracking, WriteOptions};
use crate::served::Served;

/// Causes of a refused apply.
const MANAGER_CONFLICT: &str = "FieldManagerConflict";

/// What a write through an endpoint cannot own, because the endpoint resets it.
fn filter(served: &Served, scope: Scope) -> Filter {
    let resource = served.resource;
    let without = match scope {
        Scope::Main if resource.has_status() => resource.update_resets,
        Scope::Main => &[],
        Scope::Status => resource.status_resets,
        Scope::Subresource(name) => return resource.subresource(name).map(|found| found.owns).unwrap_or_default(),
    };
    Filter { only: None, without }
}

/// Whether a write to the status may change a field of the metadata with it.
pub fn status_may_change(served: &Served, field: &str) -> bool {
    let resets = filter(served, Scope::Status).without;
    !resets.contains(&["metadata"].as_slice()) && !resets.contains(&["metadata", field].as_slice())
}

/// Sets the managers of an object that is about to be written; `live` is what it was before.
pub fn track(served: &Served, live: Option<&Value>, new: &mut Value, scope: Scope, options: &WriteOptions) {
    match &options.tracking {
        // Items that have no key cannot be told apart: upstream then gives up on the whole object.
        Tracking::By(_) if served.resource.rules.lacks_list_keys(new) => keep_managers(None, new),
        Tracking::By(manager) => ownership::track(served, live, new, &writer(served, scope, manager)),
        Tracking::Done => {}
        Tracking::Off => keep_managers(live, new),
    }
}

/// The list of managers of a client that asks to forget them all, in the one of its two forms that outlives decoding.
pub fn forgotten_managers() -> Value {
    serde_json::json!([{}])
}

fn keep_managers(live: Option<&Value>, new: &mut Value) {
    match live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]) {
        Value::Null => drop(new["metadata"].as_object_mut().map(|meta| meta.remove("managedFields"))),
        entries => new["metadata"]["managedFields"] = entries.clone(),
    }
}

/// The object after `config` was applied to it.
pub fn apply(
    served: &Served,
    live: Option<&Value>,
    config: &Value,
    scope: Scope,
    manager: &str,
    force: bool,
) -> Result<Value, Error> {
    let kind = config["kind"].as_str().unwrap_or_default();
    let api_version = config["apiVersion"].as_str().unwrap_or_default();
    if kind != served.resource.kind || api_version != served.api_version() {
        return Err(Error::bad_request(format!(
            "invalid object type: {}",
            type_text(api_version, kind)
        )));
    }
    ownership::apply(served, live, config, &writer(served, scope, manager), force).map_err(apply_error)
}

/// A group, version and kind as Go prints it.
fn type_text(api_version: &str, kind: &str) -> String {
    match api_version.contains('/') {
        true => format!("{api_version}, Kind={kind}"),
        false => format!("/{api_version}, Kind={kind}"),
    }
}

fn apply_error(error: ApplyError) -> Error {
    let message = error.to_string();
    match error {
        ApplyError::BadRequest(_) => Error::bad_request(message),
        ApplyError::Failed(_) => Error::new(Reason::Unknown, message),
        ApplyError::Conflicts(conflicts) => {
            let mut error = Error::new(Reason::Conflict, message);
            error.details().causes = conflicts
                .into_iter()
                .map(|conflict| Cause {
                    reason: MANAGER_CONFLICT.to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.path,
                })
                .collect();
            error
        }
    }
}

fn writer<'a>(served: &'a Served, scope: Scope, manager: &'a str) -> Writer<'a> {
    Writer {
        manager,
        api_version: served.api_version(),
        subresource: scope.subresource(),
        filter: filter(served, scope),
        now: schema::time::now(),
    }
}

impl Versions for Served {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        match self.object_type() {
            Some(ty) if api_version == self.api_version() => Some(Node::for_type(ty)),
            Some(_) => schema::builtin()
                .object(api_version, self.resource.kind)
                .map(Node::for_type),
            None => {
                let (group, version) = api_version.split_once('/')?;
                let definition = &self.custom.as_ref()?.definition;
                let mut versions = definition.versions.iter().filter(|known| known.served);
                let found = versions.find(|known| group == definition.group && known.name == version)?;
                Some(Node::custom(&found.schema.compiled().ownership))
            }
        }
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let mut converted = object.clone();
        if object["apiVersion"] != api_version {
            // A custom resource keeps its form: asking its webhook here would make every write wait for it twice.
            api::convert(&mut converted, api_version);
        }
        Some(converted)
    }
}

/// Reverts new times of managers where they are all that changed, so that a write of what is already there is none.
pub fn keep_times(new: &mut Value, old: &Value) {
    let (written, stored) = (&new["metadata"]["managedFields"], &old["metadata"]["managedFields"]);
    if written != stored && same_but(written, stored, &["time"]) && is_otherwise_same(new, old) {
        new["metadata"]["managedFields"] = stored.clone();
    }
}

/// Whether two lists of objects differ in nothing but some fields.
fn same_but(one: &Value, other: &Value, ignored: &[&str]) -> bool {
    let (Some(one), Some(other)) = (one.as_array(), other.as_array()) else {
        return false;
    };
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| same_fields(one, other, ignored))
}

fn is_otherwise_same(new: &Value, old: &Value) -> bool {
    same_fields(new, old, &["metadata"])
        && same_fields(
            &new["metadata"],
            &old["metadata"],
            &["managedFields", "resourceVersion"],
        )
}

fn same_fields(one: &Value, other: &Value, ignored: &[&str]) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let counts = |key: &&String| !ignored.contains(&key.as_str());
    one.keys().filter(counts).eq(other.keys().filter(counts))
        && one
            .iter()
            .filter(|(key, _)| counts(key))
            .all(|(key, value)| other.get(key) == Some(value))
}
