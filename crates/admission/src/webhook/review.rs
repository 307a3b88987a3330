//! AdmissionReview: what a webhook is sent, and what it may answer.

use std::collections::BTreeMap;

use api::kinds::namespace::NAMESPACE;
use api::{Error, Fields, Resource, Value};
use base64::Engine;
use serde_json::json;

use crate::expressions::user_info;
use crate::{Attributes, Lookup, Operation};

/// A request as one webhook sees it.
pub struct Review {
    pub uid: String,
    /// The object in the version that the webhook asked for.
    pub object: Value,
    resource: &'static Resource,
    request: Value,
}

/// What a webhook answered.
#[derive(Debug, Default)]
pub struct Answer {
    pub allowed: bool,
    pub status: Value,
    pub patch: Option<Value>,
    pub warnings: Vec<String>,
    pub annotations: BTreeMap<String, String>,
}

impl Review {
    pub async fn new(
        attributes: &Attributes,
        resource: &'static Resource,
        lookup: &dyn Lookup,
    ) -> Result<Review, Error> {
        let object = converted(&attributes.object, attributes, resource, lookup).await?;
        let old_object = converted(&attributes.old_object, attributes, resource, lookup).await?;
        let uid = new_uid();
        let request = request(attributes, resource, &uid, &object, old_object);
        Ok(Review {
            uid,
            object,
            resource,
            request,
        })
    }

    pub fn encode(&self, version: &str) -> Vec<u8> {
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": self.request,
        });
        schema::encode_json(&review)
    }

    /// An object that the webhook has changed, back in the version of the request and complete again.
    pub async fn to_request(
        &self,
        object: Value,
        attributes: &Attributes,
        lookup: &dyn Lookup,
    ) -> Result<Value, Error> {
        let same = std::ptr::eq(self.resource, attributes.resource) || attributes.body().is_some();
        let mut object = match same {
            true => object,
            false => lookup.convert(object, attributes.resource).await?,
        };
        if attributes.operation != Operation::Connect {
            attributes.complete(lookup, &mut object)?;
        }
        Ok(object)
    }
}

async fn converted(
    object: &Value,
    attributes: &Attributes,
    resource: &'static Resource,
    lookup: &dyn Lookup,
) -> Result<Value, Error> {
    let same = std::ptr::eq(resource, attributes.resource) || body_kind(attributes, resource).is_some();
    match object.is_null() || same {
        true => Ok(object.clone()),
        false => lookup.convert(object.clone(), resource).await,
    }
}

/// The kind of a subresource's own body.
fn body_kind(attributes: &Attributes, resource: &Resource) -> Option<(&'static str, &'static str, &'static str)> {
    resource.subresource(&attributes.subresource)?.body
}

fn request(attributes: &Attributes, resource: &Resource, uid: &str, object: &Value, old_object: Value) -> Value {
    let (kind, gvr) = names(attributes, resource);
    let (request_kind, request_resource) = names(attributes, attributes.resource);
    let name = attributes.object_name();
    let namespace = match attributes.concerns(&NAMESPACE) {
        true => name,
        false => attributes.namespace.as_str(),
    };
    let mut request = json!({
        "uid": uid, "kind": kind, "resource": gvr,
        "requestKind": request_kind, "requestResource": request_resource,
        "operation": attributes.operation.as_str(), "userInfo": user_info(attributes),
        "object": object, "oldObject": old_object, "dryRun": attributes.dry_run, "options": attributes.options,
    });
    for (field, text) in [
        ("subResource", attributes.subresource.as_str()),
        ("requestSubResource", attributes.subresource.as_str()),
        ("name", name),
        ("namespace", namespace),
    ] {
        if !text.is_empty() {
            request.set(field, text);
        }
    }
    request
}

fn names(attributes: &Attributes, resource: &Resource) -> (Value, Value) {
    let own = (resource.group, resource.version, resource.kind);
    let (group, version, kind) = body_kind(attributes, resource).unwrap_or(own);
    (
        json!({"group": group, "version": version, "kind": kind}),
        json!({"group": resource.group, "version": resource.version, "resource": resource.plural}),
    )
}

impl Answer {
    pub fn parse(bytes: &[u8], uid: &str, version: &str, mutating: bool) -> Result<Answer, String> {
        let review: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let found = format!("{}, Kind={}", review.text("apiVersion"), review.text("kind"));
        let wanted = format!("admission.k8s.io/{version}, Kind=AdmissionReview");
        // The first version of the API did not ask webhooks to name themselves.
        let unnamed = version == "v1beta1" && found == ", Kind=";
        let response = &review["response"];
        if !response.is_object() {
            return Err("webhook response was absent".to_owned());
        }
        let answered = response.text("uid");
        if answered != uid && !(version == "v1beta1" && answered.is_empty()) {
            return Err(format!("expected response.uid={uid:?}, got {answered:?}"));
        }
        if found != wanted && !unnamed {
            let found = if found == ", Kind=" { "/, Kind=" } else { &found };
            return Err(format!("expected webhook response of {wanted}, got {found}"));
        }
        let warnings = response.list("warnings").iter().filter_map(Value::as_str);
        let annotations = response.entries("auditAnnotations");
        Ok(Answer {
            allowed: response.flag("allowed"),
            status: response["status"].clone(),
            patch: patch(response, version, mutating)?,
            warnings: warnings.map(str::to_owned).collect(),
            annotations: annotations
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
        })
    }
}

/// The operations of a webhook that may change objects; the others must not even try.
fn patch(response: &Value, version: &str, mutating: bool) -> Result<Option<Value>, String> {
    let (text, kind) = (
        response.text("patch"),
        response.get("patchType").and_then(Value::as_str),
    );
    if version == "v1beta1" && !mutating {
        return Ok(None);
    }
    match (mutating, text, kind) {
        (false, "", None) | (true, "", None) => Ok(None),
        (false, "", Some(_)) => Err("validating webhook may not return response.patchType".to_owned()),
        (false, _, _) => Err("validating webhook may not return response.patch".to_owned()),
        (true, "", Some(_)) if version == "v1beta1" => Ok(None),
        (true, "", Some(_)) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (true, _, None) if version != "v1beta1" => {
            Err("webhook returned response.patch but not response.patchType".to_owned())
        }
        (true, _, Some("")) => Err("webhook returned invalid response.patchType of \"\"".to_owned()),
        (true, text, Some("JSONPatch") | None) => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            let decoded = decoded.map_err(|error| error.to_string())?;
            let operations = serde_json::from_slice(&decoded).map_err(|error| error.to_string())?;
            Ok(Some(operations))
        }
        (true, _, Some(other)) => Err(format!("unsupported patch type {other:?}")),
    }
}

fn new_uid() -> String {
    clock::uid()
}
