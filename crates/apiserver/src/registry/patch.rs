//! Patches in their four forms.

use api::{Error, Reason, Value};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use schema::PatchError;

use super::Served;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
}

impl PatchType {
    pub fn from_headers(headers: &HeaderMap) -> Result<PatchType, Error> {
        let value = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        match value.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Err(Error::new(
                Reason::UnsupportedMediaType,
                "server-side apply is not supported by this server yet; use client-side apply or a merge patch",
            )),
            _ => Err(Error::new(
                Reason::UnsupportedMediaType,
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
            )),
        }
    }

    /// The object after the patch, not yet in normal form.
    pub fn apply(self, served: &Served, object: &Value, patch: &Value) -> Result<Value, Error> {
        let result = match self {
            PatchType::Json => schema::json_patch(object, patch),
            PatchType::Merge => Ok(schema::merge_patch(object, patch)),
            PatchType::Strategic if served.custom.is_some() => return Err(unsupported_for_custom()),
            PatchType::Strategic => schema::strategic_merge_patch(served.required_type()?, object, patch),
        };
        let mut patched = result.map_err(patch_error)?;
        let Some(fields) = patched.as_object_mut() else {
            return Err(Error::bad_request("a patch must leave an object"));
        };
        for identity in ["apiVersion", "kind"] {
            fields.insert(identity.to_owned(), object[identity].clone());
        }
        Ok(patched)
    }
}

/// Strategic merge patch needs what only built-in types say of their lists.
fn unsupported_for_custom() -> Error {
    Error::new(
        Reason::UnsupportedMediaType,
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )
}

fn patch_error(error: PatchError) -> Error {
    match error {
        PatchError::Malformed(message) => Error::bad_request(message),
        PatchError::DoesNotApply(message) => Error::new(Reason::Invalid, message),
        PatchError::Unexpected(message) => Error::internal(message),
    }
}
