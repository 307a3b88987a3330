//! Metadata that only the server sets.

use api::{Error, Fields, Resource, Value};
use serde_json::json;

/// Upstream's alphabet for generated names: no vowels, no look-alikes.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX: usize = 5;
const MAX_GENERATED_BASE: usize = 63 - NAME_SUFFIX;

/// Sets what identifies a new object and drops what a client cannot know.
pub fn fill_new(value: &mut Value, resource: &Resource, namespace: &str) -> Result<(), Error> {
    check_namespace(value, resource, namespace)?;
    let Some(metadata) = metadata(value) else {
        return Err(Error::bad_request("metadata must be an object"));
    };
    for server_set in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "resourceVersion",
    ] {
        metadata.remove(server_set);
    }
    metadata.insert("uid".to_owned(), clock::uid().into());
    metadata.insert(
        "creationTimestamp".to_owned(),
        schema::time::format(schema::time::now()).into(),
    );
    match resource.rules.generation() {
        api::Generation::Spec | api::Generation::SpecAndLabels | api::Generation::All => {
            metadata.insert("generation".to_owned(), 1.into())
        }
        // Nobody counts yet, so that nobody minds what the client says.
        api::Generation::None | api::Generation::Changes => None,
    };
    Ok(())
}

/// Gives an object that has only a `generateName` a name of its own.
pub fn generate_name(value: &mut Value, resource: &Resource) {
    let Some(metadata) = metadata(value) else { return };
    let base = match (
        metadata.get("name").and_then(Value::as_str),
        metadata.get("generateName").and_then(Value::as_str),
    ) {
        (None | Some(""), Some(base)) if !base.is_empty() => base,
        _ => return,
    };
    let base: String = base.chars().take(MAX_GENERATED_BASE).collect();
    let name = match resource.rules.generates_names() {
        true => format!("{base}{}", random_suffix()),
        false => base,
    };
    metadata.insert("name".to_owned(), name.into());
}

pub fn random_suffix() -> String {
    clock::random_bytes()[..NAME_SUFFIX]
        .iter()
        .map(|byte| NAME_ALPHABET[*byte as usize % NAME_ALPHABET.len()] as char)
        .collect()
}

/// Carries over what an update cannot change.
pub fn carry_over(new: &mut Value, old: &Value) {
    let old_metadata = old["metadata"].as_object();
    let Some(metadata) = metadata(new) else { return };
    for server_set in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        match old_metadata.and_then(|old| old.get(server_set)) {
            Some(value) => metadata.insert(server_set.to_owned(), value.clone()),
            None => metadata.remove(server_set),
        };
    }
    metadata.remove("selfLink");
}

/// Moves the generation when anything but metadata and status changed.
pub fn bump_generation(new: &mut Value, old: &Value, resource: &Resource) {
    let counts_status = match resource.rules.generation() {
        api::Generation::None => return,
        api::Generation::Spec | api::Generation::SpecAndLabels | api::Generation::Changes => false,
        api::Generation::All => true,
    };
    let labelled = resource.rules.generation() == api::Generation::SpecAndLabels
        && new["metadata"]["labels"] != old["metadata"]["labels"];
    if same_desired_state(new, old, counts_status) && !labelled {
        return;
    }
    let next = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    new["metadata"]["generation"] = next.into();
}

fn same_desired_state(new: &Value, old: &Value, counts_status: bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    let is_desired = |(key, _): &(&String, &Value)| match key.as_str() {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => counts_status,
        _ => true,
    };
    new.iter().filter(is_desired).eq(old.iter().filter(is_desired))
}

/// The name a request is about, checked against the one in the body.
pub fn check_name(value: &mut Value, name: &str) -> Result<(), Error> {
    let Some(metadata) = metadata(value) else {
        return Err(Error::bad_request("metadata must be an object"));
    };
    match metadata.get("name").and_then(Value::as_str) {
        Some(found) if !found.is_empty() && found != name => Err(Error::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
        _ => {
            metadata.insert("name".to_owned(), name.into());
            Ok(())
        }
    }
}

/// The namespace a request is about, checked against the one in the body.
pub fn check_namespace(value: &mut Value, resource: &Resource, namespace: &str) -> Result<(), Error> {
    let Some(metadata) = metadata(value) else {
        return Err(Error::bad_request("metadata must be an object"));
    };
    let found = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !resource.namespaced {
        // What is in no namespace cannot be in another one: upstream drops it without a word.
        metadata.remove("namespace");
        return Ok(());
    }
    if !found.is_empty() && found != namespace {
        return Err(Error::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata.insert("namespace".to_owned(), namespace.into());
    Ok(())
}

pub fn metadata(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    let object = value.as_object_mut()?;
    object.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or_default()
}

/// What keeps an object from being removed once its deletion was asked for.
pub fn finalizers(resource: &Resource, value: &Value) -> usize {
    value["metadata"].list("finalizers").len() + resource.rules.other_finalizers(value).len()
}

pub fn is_deleting(value: &Value) -> bool {
    value["metadata"]["deletionTimestamp"].is_string()
}
