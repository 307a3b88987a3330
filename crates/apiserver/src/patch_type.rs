//! The forms that a patch can have, and what each makes of an object.

use api::{Error, FieldError, Path, Reason, Resource, Value};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use schema::PatchError;

use registry::{Served, forgotten_managers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    /// Server-side apply; see [`registry::apply`].
    Apply,
}

/// Failed patches are about no certain object.
static NO_OBJECT: Resource = Resource::cluster("", "", "", "", "");

/// A patch whose result cannot be read.
pub fn invalid_patch(patch: String, why: &str) -> Error {
    let problem = FieldError::invalid(&Path::new("patch"), patch, why);
    let mut error = Error::invalid(&NO_OBJECT, "", vec![problem]);
    error.details().kind.clear();
    error
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
            "application/apply-patch+yaml" => Ok(PatchType::Apply),
            _ => {
                let mut error = Error::new(Reason::UnsupportedMediaType, "415: Unsupported Media Type");
                error.details();
                Err(error)
            }
        }
    }

    /// The object after the patch, not yet in normal form. It stays of its kind, whatever the patch says.
    pub fn apply(self, served: &Served, object: &Value, patch: &Value) -> Result<Value, Error> {
        let mut patched = self.patched(served, object, patch)?;
        for identity in ["apiVersion", "kind"] {
            patched[identity] = object[identity].clone();
        }
        Ok(patched)
    }

    /// The same with the kind and version that the patch gives it.
    pub fn patched(self, served: &Served, object: &Value, patch: &Value) -> Result<Value, Error> {
        let result = match self {
            PatchType::Json => schema::json_patch(object, patch),
            PatchType::Merge => Ok(schema::merge_patch(object, patch)),
            PatchType::Strategic if served.custom.is_some() => return Err(unsupported_for_custom()),
            PatchType::Strategic => schema::strategic_merge_patch(served.required_type()?, object, patch),
            PatchType::Apply => return Err(Error::internal("an applied configuration is not a patch")),
        };
        let mut patched = result.map_err(|error| patch_error(self, error))?;
        let Some(fields) = patched.as_object_mut() else {
            return Err(Error::bad_request("a patch must leave an object"));
        };
        // An empty list of managers asks to forget them; normal form would drop it.
        if fields.get("metadata").and_then(|meta| meta.get("managedFields")) == Some(&Value::Array(Vec::new())) {
            fields["metadata"]["managedFields"] = forgotten_managers();
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

fn patch_error(kind: PatchType, error: PatchError) -> Error {
    match error {
        // Upstream keeps the reason to itself.
        PatchError::DoesNotApply(_) if kind == PatchType::Json => {
            let message = "the server rejected our request due to an error in our request";
            let mut error = Error::new(Reason::Invalid, message);
            error.details();
            error
        }
        PatchError::Malformed(message) => Error::bad_request(message),
        PatchError::TooLarge(message) => {
            let message = format!("Request entity too large: {message}");
            Error::new(Reason::RequestEntityTooLarge, message)
        }
        PatchError::DoesNotApply(message) => Error::new(Reason::Invalid, message),
        PatchError::Unexpected(message) => Error::new(Reason::Unknown, message),
    }
}
