//! What a call may ask for besides its object, and the envelope of a list.

use api::Value;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Which objects a list returns, and how fresh they must be.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// Objects per page; 0 asks for all at once.
    pub limit: u32,
    /// Where the previous page ended.
    pub continue_token: String,
    /// Empty asks for the latest state, `0` for any state the server has at hand.
    pub resource_version: String,
}

#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// Events after this revision; empty starts with the current objects as `ADDED`.
    pub resource_version: String,
    pub allow_bookmarks: bool,
    /// The server ends the stream after this time; 0 leaves the choice to it.
    pub timeout_seconds: u32,
}

/// How a create, update or patch is carried out.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Overrides the client's own name for `metadata.managedFields`.
    pub field_manager: Option<String>,
    pub dry_run: bool,
    /// `Ignore`, `Warn` or `Strict`; empty leaves the choice to the server.
    pub field_validation: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The object must still have this UID.
    pub uid: Option<String>,
    /// The object must still be at this revision.
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

/// A change to an object in one of the four forms that the API understands.
#[derive(Clone, Debug)]
pub struct Patch {
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    pub(crate) force: bool,
}

/// A page of objects.
#[derive(Debug, Deserialize)]
pub struct List<T> {
    #[serde(default)]
    pub metadata: ListMeta,
    #[serde(
        default = "Vec::new",
        deserialize_with = "null_is_empty",
        bound(deserialize = "T: Deserialize<'de>")
    )]
    pub items: Vec<T>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    pub resource_version: String,
    #[serde(rename = "continue")]
    pub continue_token: String,
    pub remaining_item_count: Option<i64>,
}

/// Upstream encodes an empty list of some kinds as `null`.
fn null_is_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(source: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

impl Patch {
    pub fn merge(patch: &Value) -> Patch {
        Patch::of("application/merge-patch+json", patch)
    }

    pub fn strategic(patch: &Value) -> Patch {
        Patch::of("application/strategic-merge-patch+json", patch)
    }

    /// A list of operations as in RFC 6902.
    pub fn json(operations: &Value) -> Patch {
        Patch::of("application/json-patch+json", operations)
    }

    /// Server-side apply; `force` takes fields over from other managers.
    pub fn apply(object: &Value, force: bool) -> Patch {
        Patch {
            force,
            ..Patch::of("application/apply-patch+yaml", object)
        }
    }

    /// A patch that is already encoded; its form is given by the content type.
    pub fn encoded(content_type: &'static str, body: Bytes, force: bool) -> Patch {
        Patch {
            content_type,
            body,
            force,
        }
    }

    fn of(content_type: &'static str, patch: &Value) -> Patch {
        Patch::encoded(content_type, Bytes::from(patch.to_string()), false)
    }
}

impl DeleteOptions {
    pub fn uid(uid: impl Into<String>) -> DeleteOptions {
        DeleteOptions {
            uid: Some(uid.into()),
            ..DeleteOptions::default()
        }
    }

    pub fn propagation(propagation: Propagation) -> DeleteOptions {
        DeleteOptions {
            propagation: Some(propagation),
            ..DeleteOptions::default()
        }
    }

    /// The body of a DELETE.
    pub(crate) fn body(&self) -> Bytes {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(propagation) = self.propagation {
            body["propagationPolicy"] = json!(propagation);
        }
        if let Some(uid) = &self.uid {
            body["preconditions"]["uid"] = uid.as_str().into();
        }
        if let Some(revision) = &self.resource_version {
            body["preconditions"]["resourceVersion"] = revision.as_str().into();
        }
        if self.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        Bytes::from(body.to_string())
    }
}

impl ListOptions {
    pub(crate) fn query(&self) -> Query {
        Query::default()
            .text("labelSelector", &self.label_selector)
            .text("fieldSelector", &self.field_selector)
            .number("limit", self.limit)
            .text("continue", &self.continue_token)
            .text("resourceVersion", &self.resource_version)
    }
}

impl WatchOptions {
    pub(crate) fn query(&self) -> Query {
        Query::default()
            .text("watch", "true")
            .text("labelSelector", &self.label_selector)
            .text("fieldSelector", &self.field_selector)
            .text("resourceVersion", &self.resource_version)
            .text("allowWatchBookmarks", if self.allow_bookmarks { "true" } else { "" })
            .number("timeoutSeconds", self.timeout_seconds)
    }
}

impl WriteOptions {
    pub(crate) fn query(&self, default_manager: &str) -> Query {
        Query::default()
            .text("fieldManager", self.field_manager.as_deref().unwrap_or(default_manager))
            .text("dryRun", if self.dry_run { "All" } else { "" })
            .text("fieldValidation", self.field_validation)
    }
}

/// A query string in the making; empty values are left out.
#[derive(Default)]
pub(crate) struct Query(String);

impl Query {
    pub fn text(mut self, name: &str, value: &str) -> Query {
        if !value.is_empty() {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(name);
            self.0.push('=');
            push_escaped(&mut self.0, value);
        }
        self
    }

    pub fn number(self, name: &str, value: u32) -> Query {
        if value == 0 {
            self
        } else {
            self.text(name, &value.to_string())
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Appends `text` so that it stands for itself in a path segment or a query value.
pub(crate) fn push_escaped(target: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => target.push(byte as char),
            _ => target.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_leave_out_what_is_not_set_and_escape_the_rest() {
        let options = ListOptions {
            label_selector: "app in (a, b)".to_owned(),
            limit: 500,
            ..ListOptions::default()
        };
        assert_eq!(
            options.query().as_str(),
            "?labelSelector=app%20in%20%28a%2C%20b%29&limit=500"
        );
        assert_eq!(ListOptions::default().query().as_str(), "");
    }

    #[test]
    fn lists_may_say_null() {
        let list: List<Value> = serde_json::from_str(r#"{"metadata":{"resourceVersion":"7"},"items":null}"#).unwrap();
        assert!(list.items.is_empty());
        assert_eq!(list.metadata.resource_version, "7");
    }
}
