//! What is found to be wrong, where, and what to do about it.

use std::fmt;

use api::{Resource, Value};
use serde::{Serialize, Serializer};

use super::look::Look;
use super::plain;

/// The most that one finding says; objects can hold messages of any length.
const MAX_DETAILS: usize = 24;
const MAX_MESSAGE_CHARS: usize = 700;

/// How much a finding matters, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something that many objects need is broken: a node, an API, a webhook.
    Cluster,
    /// The object does not do what it is for.
    Broken,
    /// It waits for something that may come by itself.
    Waiting,
    /// It works, and something about it is worth knowing.
    Note,
}

/// The name of an object, as `karve why` takes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    pub kind: &'static str,
    /// Empty for objects outside of namespaces.
    pub namespace: String,
    pub name: String,
}

/// One reason why an object is not healthy.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// A fixed word for programs.
    pub cause: &'static str,
    /// The objects that this was found of; several where their owner made them alike.
    pub objects: Vec<Reference>,
    /// What is wrong, in one or two sentences that do not name the object.
    pub message: String,
    /// Numbers, answers and log lines that show it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// What to do next.
    #[serde(rename = "next", skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<String>,
    /// The object whose trouble this is a consequence of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<Reference>,
    /// What the objects have in common: the UID of the one that made them.
    #[serde(skip)]
    pub(super) family: String,
    /// Objects that suffer from this, by findings of their own that were folded into this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub affects: Vec<Reference>,
}

impl Finding {
    pub fn new(severity: Severity, cause: &'static str, message: impl Into<String>) -> Finding {
        Finding {
            severity,
            cause,
            objects: Vec::new(),
            message: message.into(),
            details: Vec::new(),
            remedies: Vec::new(),
            root: None,
            family: String::new(),
            affects: Vec::new(),
        }
    }

    pub fn broken(cause: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Broken, cause, message)
    }

    pub fn waiting(cause: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Waiting, cause, message)
    }

    pub fn note(cause: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Note, cause, message)
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Finding {
        self.details.push(detail.into());
        self
    }

    pub fn details(mut self, details: impl IntoIterator<Item = String>) -> Finding {
        self.details.extend(details);
        self
    }

    /// Adds what to do next.
    pub fn next(mut self, remedy: impl Into<String>) -> Finding {
        self.remedies.push(remedy.into());
        self
    }

    /// Says that this is a consequence of another object's trouble.
    pub fn because_of(mut self, root: Reference) -> Finding {
        self.root = Some(root);
        self
    }

    /// Takes out what a terminal would obey, and bounds it.
    pub(super) fn cleaned(mut self) -> Finding {
        self.message = plain::line(&self.message, MAX_MESSAGE_CHARS);
        let left_out = self.details.len().saturating_sub(MAX_DETAILS);
        self.details.truncate(MAX_DETAILS);
        for text in self.details.iter_mut().chain(&mut self.remedies) {
            let indent = if text.starts_with("  ") { "  " } else { "" };
            *text = format!("{indent}{}", plain::line(text, MAX_MESSAGE_CHARS));
        }
        if left_out > 0 {
            self.details.push(format!("… and {left_out} more"));
        }
        self
    }
}

impl Reference {
    pub fn new(resource: &Resource, namespace: &str, name: &str) -> Reference {
        Reference {
            kind: resource.singular,
            namespace: match resource.namespaced {
                true => plain::line(namespace, 253),
                false => String::new(),
            },
            name: plain::line(name, 253),
        }
    }

    pub fn of(resource: &Resource, object: &Value) -> Reference {
        Reference::new(resource, object.namespace(), object.name())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind, self.name)
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            kind: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            namespace: &'a str,
            name: &'a str,
        }
        let shape = Shape {
            kind: self.kind,
            namespace: &self.namespace,
            name: &self.name,
        };
        shape.serialize(serializer)
    }
}
