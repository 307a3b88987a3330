//! Conversion between the versions of a custom resource: by name only, or by asking its webhook.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

use api::custom::Conversion;
use api::{Error, Value};
use bytes::Bytes;
use client::Webhook;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::ApiServer;

/// How long a webhook may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How many converted objects are remembered: the same state of an object converts to the same result, and watchers and
/// lists ask for it again and again.
const MAX_REMEMBERED: usize = 1024;

/// The forms of a review that we speak.
const REVIEW_VERSIONS: [&str; 1] = ["v1"];

pub enum Converter {
    Rename,
    Webhook(Box<Hook>),
}

pub struct Hook {
    webhook: Result<Webhook, String>,
    speaks: bool,
    server: Weak<ApiServer>,
    remembered: Mutex<HashMap<Remembered, Value>>,
}

/// An object's identity and state, and the version it was converted to.
type Remembered = (String, String, String);

impl Converter {
    pub fn new(conversion: &Conversion, server: &Weak<ApiServer>) -> Converter {
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
            server: server.clone(),
            remembered: Mutex::default(),
        }))
    }

    pub fn convert(&self, object: &mut Value, api_version: &str) -> Result<(), Error> {
        match self {
            Converter::Rename => {
                object["apiVersion"] = api_version.into();
                Ok(())
            }
            Converter::Webhook(hook) => {
                *object = hook.convert(object, api_version)?;
                Ok(())
            }
        }
    }
}

impl Hook {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Error> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (text("uid"), text("resourceVersion"), api_version.to_owned());
        let known = !key.1.is_empty() && key.1 != "0";
        if known && let Some(found) = self.remembered.lock().get(&key) {
            return Ok(found.clone());
        }
        let converted = self.ask(object, api_version).map_err(|why| failed(object, &why))?;
        if known {
            let mut remembered = self.remembered.lock();
            if remembered.len() >= MAX_REMEMBERED {
                remembered.clear();
            }
            remembered.insert(key, converted.clone());
        }
        Ok(converted)
    }

    fn ask(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let webhook = self.webhook.as_ref().map_err(Clone::clone)?;
        if !self.speaks {
            return Err("the webhook's conversionReviewVersions do not include \"v1\"".to_owned());
        }
        let server = self.server.upgrade().ok_or("the server is shutting down")?;
        let uid = uuid::Uuid::new_v4().to_string();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": { "uid": uid, "desiredAPIVersion": api_version, "objects": [object] },
        });
        let lookup = server.registry.lookup();
        let services = admission::Services(&lookup);
        let call = webhook.post(&services, Bytes::from(review.to_string()), TIMEOUT);
        let handle = Handle::try_current().map_err(|error| error.to_string())?;
        if handle.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err("conversion webhooks need a runtime with several threads".to_owned());
        }
        // What is read is converted where it is shown, deep inside of lists and watches that hold nothing else up.
        let answer = tokio::task::block_in_place(|| handle.block_on(call)).map_err(|error| error.to_string())?;
        let review: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        converted(object, &review["response"], &uid, api_version)
    }
}

/// What the webhook made of the object. It may change labels and annotations, but no other metadata.
fn converted(object: &Value, response: &Value, uid: &str, api_version: &str) -> Result<Value, String> {
    if response["uid"] != uid {
        return Err(format!("expected response.uid={uid:?}, got {}", response["uid"]));
    }
    if response["result"]["status"] != "Success" {
        let message = response["result"]["message"].as_str().unwrap_or_default();
        return Err(message.to_owned());
    }
    let objects = response["convertedObjects"].as_array().map_or(&[][..], Vec::as_slice);
    let [found] = objects else {
        return Err(format!("returned {} objects, expected 1", objects.len()));
    };
    if found["apiVersion"] != api_version {
        return Err(format!(
            "returned invalid converted object at index 0: invalid groupVersion (received {}, expected {api_version})",
            found["apiVersion"].as_str().unwrap_or_default(),
        ));
    }
    if found["kind"] != object["kind"] {
        return Err("returned invalid converted object at index 0: invalid kind".to_owned());
    }
    for field in ["name", "namespace", "uid"] {
        if found["metadata"][field] != object["metadata"][field] {
            return Err(format!(
                "returned invalid metadata in object at index 0: metadata.{field} mismatch: {} != {}",
                found["metadata"][field], object["metadata"][field],
            ));
        }
    }
    let mut result = found.clone();
    let mut metadata = object["metadata"].clone();
    for field in ["labels", "annotations"] {
        match found["metadata"].get(field).filter(|value| value.is_object()) {
            Some(value) => metadata[field] = value.clone(),
            None => {
                if let Some(metadata) = metadata.as_object_mut() {
                    metadata.remove(field);
                }
            }
        }
    }
    result["metadata"] = metadata;
    Ok(result)
}

fn failed(object: &Value, why: &str) -> Error {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    Error::internal(format!(
        "conversion webhook for {}, Kind={} failed: {why}",
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
        let result = converted(&object, &response, "r", "a/v2");
        assert_eq!(result, expected.map_err(str::to_owned));
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
}
