//! What a controller wants done. Plans are data: planners make them without IO, the driver carries them out.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use api::{ObjectMeta, Resource, Value};
use client::{EventType, ObjectReference, Propagation};

/// All that is to be done for one key.
#[derive(Default)]
pub struct Plan {
    /// Carried out in order. Neighbouring creations are made in growing batches, neighbouring deletions at once; the
    /// first failure ends the list.
    pub actions: Vec<Action>,
    /// Written last, even when an action failed.
    pub status: Option<Patch>,
    /// Plan again after this time, whatever happens.
    pub requeue: Option<Duration>,
}

pub enum Action {
    Create(Create),
    Delete(Delete),
    Patch(Patch),
    /// Puts an owner reference on an object, once a live read has confirmed that the owner is still there.
    Adopt(Adopt),
    DeleteCollection {
        resource: &'static Resource,
        namespace: String,
    },
    /// Replaces an object through a subresource with a whole object as it was read.
    Put(Put),
    Event(Event),
}

pub struct Create {
    pub resource: &'static Resource,
    pub namespace: String,
    pub object: Value,
    /// An object of this name that is there already is as good.
    pub exists_is_fine: bool,
    pub announce: Option<Announce>,
    /// The stage to record for the created object.
    pub mark: Option<&'static str>,
}

/// A whole object for a subresource.
pub struct Put {
    pub resource: &'static Resource,
    pub namespace: String,
    pub name: String,
    pub subresource: &'static str,
    pub object: Value,
    pub announce: Option<Announce>,
}

pub struct Delete {
    pub resource: &'static Resource,
    pub namespace: String,
    pub name: String,
    /// Only the object with this UID is deleted.
    pub uid: String,
    /// Only at this revision, when it is not empty.
    pub only_at: String,
    /// The revision at which the planner saw the object.
    pub seen_at: String,
    pub propagation: Option<Propagation>,
    pub grace_period_seconds: Option<i64>,
    pub announce: Option<Announce>,
}

/// A patch. To make it conditional the body names the resourceVersion or UID it is for.
#[derive(Clone)]
pub struct Patch {
    pub resource: &'static Resource,
    pub namespace: String,
    pub name: String,
    pub subresource: &'static str,
    pub body: Value,
    pub form: Form,
    /// May be under way together with its neighbours that say so too, which are of other objects.
    pub at_once: bool,
    pub announce: Option<Announce>,
    /// The stage to record for the patched object.
    pub mark: Option<&'static str>,
}

/// How a change reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Merge,
    /// Adds to keyed lists where a merge patch would replace them.
    Strategic,
    /// As a merge patch, but made here and written as a whole: upstream's roles let many controllers update what they
    /// may not patch.
    Update,
}

pub struct Adopt {
    pub owner: &'static Resource,
    pub owner_name: String,
    pub owner_uid: String,
    pub patch: Patch,
}

/// Events that tell how an action went. The object's name follows a text that ends with a space, the error any text.
#[derive(Clone)]
pub struct Announce {
    pub about: ObjectReference,
    pub success: (&'static str, String),
    /// Its reason, and what stands before the error.
    pub failure: Option<(&'static str, Cow<'static, str>)>,
}

#[derive(Clone)]
pub struct Event {
    pub about: ObjectReference,
    pub kind: EventType,
    pub reason: &'static str,
    pub message: String,
}

impl Plan {
    pub fn nothing() -> Plan {
        Plan::default()
    }

    /// Asks to be planned again after `delay`, or earlier if that was asked for already.
    pub fn again_after(&mut self, delay: Duration) {
        self.requeue = Some(self.requeue.map_or(delay, |known| known.min(delay)));
    }
}

impl Create {
    pub fn new(resource: &'static Resource, namespace: &str, object: Value) -> Create {
        Create {
            resource,
            namespace: namespace.to_owned(),
            object,
            exists_is_fine: false,
            announce: None,
            mark: None,
        }
    }
}

impl Delete {
    pub fn new(resource: &'static Resource, metadata: &ObjectMeta) -> Delete {
        Delete {
            resource,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            only_at: String::new(),
            seen_at: metadata.resource_version.clone(),
            propagation: None,
            grace_period_seconds: None,
            announce: None,
        }
    }
}

impl Patch {
    pub fn new(resource: &'static Resource, metadata: &ObjectMeta, body: Value) -> Patch {
        Patch {
            resource,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            subresource: "",
            body,
            form: Form::Merge,
            at_once: false,
            announce: None,
            mark: None,
        }
    }

    /// Adds to keyed lists of the status, such as conditions, whatever else is in them.
    pub fn strategic_status(resource: &'static Resource, metadata: &ObjectMeta, status: Value) -> Patch {
        let body = serde_json::json!({"metadata": {"uid": metadata.uid}, "status": status});
        Patch {
            subresource: "status",
            form: Form::Strategic,
            ..Patch::new(resource, metadata, body)
        }
    }

    pub fn by_update(mut self) -> Patch {
        self.form = Form::Update;
        self
    }

    /// Makes the patch conditional on the revision that the planner saw.
    pub fn at_revision(mut self, metadata: &ObjectMeta) -> Patch {
        self.body["metadata"]["resourceVersion"] = metadata.resource_version.as_str().into();
        self
    }
}

impl fmt::Display for Plan {
    /// The plan as text, for tests and for people.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(formatter, "{action}")?;
        }
        if let Some(status) = &self.status {
            writeln!(formatter, "{status}")?;
        }
        if let Some(delay) = self.requeue {
            writeln!(formatter, "again after {delay:?}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Create(create) => {
                write!(formatter, "create {} ", create.resource.plural)?;
                write!(formatter, "in {}: {}", or_none(&create.namespace), create.object)
            }
            Action::Delete(delete) => {
                let place = place(&delete.namespace, &delete.name);
                write!(formatter, "delete {} {place}", delete.resource.plural)?;
                match delete.propagation {
                    Some(propagation) => write!(formatter, " ({propagation:?})"),
                    None => Ok(()),
                }
            }
            Action::Patch(patch) => write!(formatter, "{patch}"),
            Action::Adopt(adopt) => write!(formatter, "adopt: {}", adopt.patch),
            Action::DeleteCollection { resource, namespace } => {
                write!(
                    formatter,
                    "delete all {} in {}",
                    resource.qualified(),
                    or_none(namespace)
                )
            }
            Action::Put(put) => {
                let (plural, place) = (put.resource.plural, place(&put.namespace, &put.name));
                write!(formatter, "put {plural} {place}/{}: {}", put.subresource, put.object)
            }
            Action::Event(event) => {
                let (kind, reason) = (event.kind.as_str(), event.reason);
                write!(formatter, "event {kind} {reason}: {}", event.message)
            }
        }
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = place(&self.namespace, &self.name);
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let (resource, subresource) = (self.resource.plural, self.subresource);
        write!(formatter, "patch {resource} {place}{slash}{subresource}: {}", self.body)
    }
}

fn place(namespace: &str, name: &str) -> String {
    client::Key::new(namespace, name).to_string()
}

fn or_none(namespace: &str) -> &str {
    if namespace.is_empty() {
        "no namespace"
    } else {
        namespace
    }
}
