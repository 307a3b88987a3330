//! Conversion between the versions of a custom resource: by name only, or by asking its webhook.

use std::collections::{HashMap, VecDeque};
use std::sync::Weak;
use std::time::Duration;

use api::custom::Conversion;
use api::{Error, Value};
use bytes::Bytes;
use client::{ServiceResolver, Webhook};
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::{Handle, RuntimeFlavor};

/// How long a webhook may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How many converted objects are remembered: the same state of an object converts to the same result, and watchers and
/// lists ask for it again and again.
const MAX_REMEMBERED: usize = 1024;

/// How much is sent in one request: what comes back is about as long, and has to come in time.
const MAX_BATCH: usize = 1000;
const MAX_BATCH_BYTES: usize = 2 << 20;

/// The forms of a review that we speak.
const REVIEW_VERSIONS: [&str; 1] = ["v1"];

pub enum Converter {
    Rename,
    Webhook(Box<Hook>),
}

pub struct Hook {
    webhook: Result<Webhook, String>,
    speaks: bool,
    services: Weak<dyn ServiceResolver>,
    remembered: Mutex<HashMap<Remembered, Value>>,
}

/// An object's identity and state, and the version it was converted to.
type Remembered = (String, String, String);

impl Converter {
    pub fn new(conversion: &Conversion, services: &Weak<dyn ServiceResolver>) -> Converter {
        let config = match conversion {
            Conversion::Rename => return Converter::Rename,
            Conversion::Webhook(config) => config,
        };
        let versions = config["conversionReviewVersions"].as_array();
        let speaks = |version: &Value| {
            version
                .as_str()
                .is_some_and(|version| REVIEW_VERSIONS.contains(&version))
        };
        Converter::Webhook(Box::new(Hook {
            webhook: Webhook::new(&config["clientConfig"]).map_err(|error| error.to_string()),
            speaks: versions.is_some_and(|versions| versions.iter().any(speaks)),
            services: services.clone(),
            remembered: Mutex::default(),
        }))
    }

    /// Converts objects of one kind, all of them by as few requests as can be.
    pub fn convert(&self, objects: &mut [&mut Value], api_version: &str) -> Result<(), Error> {
        match self {
            Converter::Rename => {
                for object in objects {
                    object["apiVersion"] = api_version.into();
                }
                Ok(())
            }
            Converter::Webhook(hook) => hook.convert(objects, api_version),
        }
    }
}

impl Hook {
    fn convert(&self, objects: &mut [&mut Value], api_version: &str) -> Result<(), Error> {
        let whole = if objects.len() > 1 { "List" } else { "" };
        let mut left = VecDeque::new();
        for object in objects {
            let key = key(object, api_version);
            let found = key.as_ref().and_then(|key| self.remembered.lock().get(key).cloned());
            match found {
                Some(found) => **object = found,
                None => left.push_back((key, object.to_string(), &mut **object)),
            }
        }
        while !left.is_empty() {
            let batch: Vec<_> = left
                .drain(..batch_length(left.iter().map(|(_, text, _)| text.len())))
                .collect();
            let texts: Vec<&str> = batch.iter().map(|(_, text, _)| text.as_str()).collect();
            let before: Vec<&Value> = batch.iter().map(|(_, _, object)| &**object).collect();
            let after = self.ask(&before, &texts, api_version);
            let after = after.map_err(|why| failed(before[0], whole, &why))?;
            for ((key, _, object), converted) in batch.into_iter().zip(after) {
                if let Some(key) = key {
                    self.remember(key, &converted);
                }
                *object = converted;
            }
        }
        Ok(())
    }

    fn remember(&self, key: Remembered, converted: &Value) {
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, converted.clone());
    }

    /// Asks for all of these objects, which stand in `texts` as they are sent.
    fn ask(&self, objects: &[&Value], texts: &[&str], api_version: &str) -> Result<Vec<Value>, String> {
        let webhook = self.webhook.as_ref().map_err(Clone::clone)?;
        if !self.speaks {
            return Err("the webhook's conversionReviewVersions do not include \"v1\"".to_owned());
        }
        let services = self.services.upgrade().ok_or("the server is shutting down")?;
        let uid = clock::uid();
        let review = format!(
            "{{\"kind\":\"ConversionReview\",\"apiVersion\":\"apiextensions.k8s.io/v1\",\"request\":{{\"uid\":\"{uid}\",\
             \"desiredAPIVersion\":{},\"objects\":[{}]}}}}",
            json!(api_version),
            texts.join(","),
        );
        let call = webhook.post(&*services, Bytes::from(review), TIMEOUT);
        let handle = Handle::try_current().map_err(|error| error.to_string())?;
        if handle.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err("conversion webhooks need a runtime with several threads".to_owned());
        }
        // What is read is converted where it is shown, deep inside of lists and watches that hold nothing else up.
        let answer = tokio::task::block_in_place(|| handle.block_on(call)).map_err(|error| error.to_string())?;
        let mut review: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        all_converted(objects, review["response"].take(), &uid, api_version)
    }
}

/// What an object's converted form is remembered by; nothing for one that is not stored yet.
fn key(object: &Value, api_version: &str) -> Option<Remembered> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let revision = text("resourceVersion");
    let known = !revision.is_empty() && revision != "0";
    known.then(|| (text("uid"), revision, api_version.to_owned()))
}

/// How many objects of these lengths the next request has: at least one.
fn batch_length(lengths: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fits = |length: &usize| {
        bytes += length;
        bytes <= MAX_BATCH_BYTES
    };
    lengths.take(MAX_BATCH).take_while(fits).count().max(1)
}

/// What the webhook made of all objects.
fn all_converted(objects: &[&Value], mut response: Value, uid: &str, api_version: &str) -> Result<Vec<Value>, String> {
    if response["uid"] != uid {
        return Err(format!("expected response.uid={uid:?}, got {}", response["uid"]));
    }
    if response["result"]["status"] != "Success" {
        let message = response["result"]["message"].as_str().unwrap_or_default();
        return Err(message.to_owned());
    }
    let Value::Array(found) = response["convertedObjects"].take() else {
        return Err(format!("returned 0 objects, expected {}", objects.len()));
    };
    if found.len() != objects.len() {
        return Err(format!("returned {} objects, expected {}", found.len(), objects.len()));
    }
    let pairs = objects.iter().zip(found).enumerate();
    pairs
        .map(|(index, (object, found))| converted(object, found, index, api_version))
        .collect()
}

/// What the webhook made of an object. It may change labels and annotations, but no other metadata.
fn converted(object: &Value, mut found: Value, index: usize, api_version: &str) -> Result<Value, String> {
    if found["apiVersion"] != api_version {
        return Err(format!(
            "returned invalid converted object at index {index}: invalid groupVersion (received {}, expected {api_version})",
            found["apiVersion"].as_str().unwrap_or_default(),
        ));
    }
    if found["kind"] != object["kind"] {
        return Err(format!(
            "returned invalid converted object at index {index}: invalid kind"
        ));
    }
    for field in ["name", "namespace", "uid"] {
        if found["metadata"][field] != object["metadata"][field] {
            return Err(format!(
                "returned invalid metadata in object at index {index}: metadata.{field} mismatch: {} != {}",
                found["metadata"][field], object["metadata"][field],
            ));
        }
    }
    let mut metadata = object["metadata"].clone();
    for field in ["labels", "annotations"] {
        match found["metadata"].get_mut(field).filter(|value| value.is_object()) {
            Some(value) => metadata[field] = value.take(),
            None => {
                if let Some(metadata) = metadata.as_object_mut() {
                    metadata.remove(field);
                }
            }
        }
    }
    found["metadata"] = metadata;
    Ok(found)
}

fn failed(object: &Value, whole: &str, why: &str) -> Error {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    Error::internal(format!(
        "conversion webhook for {}, Kind={}{whole} failed: {why}",
        text("apiVersion"),
        text("kind"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: Value, expected: Result<Value, &str>) {
        let object = json!({
            "apiVersion": "a/v1", "kind": "A", "metadata": { "name": "a", "uid": "u", "generation": 1 }, "old": 1,
        });
        let response = json!({ "uid": "r", "result": { "status": "Success" }, "convertedObjects": [found] });
        let result = all_converted(&[&object], response, "r", "a/v2");
        assert_eq!(result, expected.map(|expected| vec![expected]).map_err(str::to_owned));
    }

    #[test]
    fn a_webhook_may_change_everything_but_most_of_the_metadata() {
        check(
            json!({ "apiVersion": "a/v2", "kind": "A", "metadata": { "name": "a", "uid": "u", "labels": { "l": "1" } }, "new": 1 }),
            Ok(json!({
                "apiVersion": "a/v2", "kind": "A", "new": 1,
                "metadata": { "name": "a", "uid": "u", "generation": 1, "labels": { "l": "1" } },
            })),
        );
        check(
            json!({ "apiVersion": "a/v1", "kind": "A", "metadata": { "name": "a", "uid": "u" } }),
            Err("returned invalid converted object at index 0: invalid groupVersion (received a/v1, expected a/v2)"),
        );
        check(
            json!({ "apiVersion": "a/v2", "kind": "A", "metadata": { "name": "b", "uid": "u" } }),
            Err("returned invalid metadata in object at index 0: metadata.name mismatch: \"b\" != \"a\""),
        );
    }

    #[test]
    fn a_request_has_many_objects_but_is_not_long() {
        assert_eq!(batch_length([1; 3].into_iter()), 3);
        assert_eq!(batch_length([1; 5000].into_iter()), MAX_BATCH);
        assert_eq!(batch_length([MAX_BATCH_BYTES / 2; 3].into_iter()), 2);
        assert_eq!(batch_length([MAX_BATCH_BYTES + 1; 3].into_iter()), 1);
    }

    #[test]
    fn every_object_is_answered() {
        let object = json!({ "apiVersion": "a/v1", "kind": "A", "metadata": { "name": "a" } });
        let response =
            |objects: Value| json!({ "uid": "r", "result": { "status": "Success" }, "convertedObjects": objects });
        let of = |objects: Value| all_converted(&[&object, &object], response(objects), "r", "a/v2");
        let new = json!({ "apiVersion": "a/v2", "kind": "A", "metadata": { "name": "a" } });
        assert_eq!(of(json!([new, new])), Ok(vec![new.clone(), new.clone()]));
        assert_eq!(of(json!([new])), Err("returned 1 objects, expected 2".to_owned()));
        assert_eq!(
            of(json!([new, { "apiVersion": "a/v2", "kind": "B" }])),
            Err("returned invalid converted object at index 1: invalid kind".to_owned())
        );
    }
}
