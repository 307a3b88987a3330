//! Events: what a component tells people about an object, without flooding the API server.
//!
//! Repeats raise the count of the event that is there; many different messages of one reason about one object are
//! combined into one; and no object gets more than a burst of events, then one every five minutes.

mod correlator;

use std::sync::Arc;

use api::kinds::event::EVENT;
use api::{ObjectMeta, Resource, Value};
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use crate::when::Moment;
use crate::{Client, Patch};
use correlator::{Correlator, Write};

/// Events that wait to be written; more are dropped, as a component never waits for its events.
const MAX_WAITING: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

/// The object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// A part of the object, such as `spec.containers{web}`.
    pub field_path: String,
}

/// Writes events in the background under a component's name. Cheap to clone.
#[derive(Clone)]
pub struct EventRecorder {
    sender: mpsc::Sender<Event>,
    source: Arc<EventSource>,
}

/// Who records.
#[derive(Debug)]
struct EventSource {
    component: String,
    host: String,
}

#[derive(Clone, Debug)]
struct Event {
    about: ObjectReference,
    kind: EventType,
    reason: String,
    message: String,
    at: Moment,
    source: Arc<EventSource>,
}

impl ObjectReference {
    pub fn new(resource: &Resource, metadata: &ObjectMeta) -> ObjectReference {
        ObjectReference {
            api_version: resource.api_version(),
            kind: resource.kind.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path: String::new(),
        }
    }

    pub fn field(mut self, path: impl Into<String>) -> ObjectReference {
        self.field_path = path.into();
        self
    }
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

impl EventRecorder {
    /// Starts writing events of `component` on `host`. Must be called within a runtime; writing ends when the last
    /// clone is dropped.
    pub fn start(client: Client, component: &str, host: &str) -> EventRecorder {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        tokio::spawn(write_all(client, receiver));
        EventRecorder {
            sender,
            source: Arc::new(EventSource {
                component: component.to_owned(),
                host: host.to_owned(),
            }),
        }
    }

    /// The same writer under another component's name.
    pub fn for_component(&self, component: &str) -> EventRecorder {
        EventRecorder {
            sender: self.sender.clone(),
            source: Arc::new(EventSource {
                component: component.to_owned(),
                host: self.source.host.clone(),
            }),
        }
    }

    pub fn event(&self, about: &ObjectReference, kind: EventType, reason: &str, message: impl Into<String>) {
        let event = Event {
            about: about.clone(),
            kind,
            reason: reason.to_owned(),
            message: message.into(),
            at: Moment::now(),
            source: self.source.clone(),
        };
        if let Err(error) = self.sender.try_send(event) {
            tracing::debug!(%error, reason, "an event was dropped");
        }
    }
}

async fn write_all(client: Client, mut receiver: mpsc::Receiver<Event>) {
    let mut correlator = Correlator::default();
    while let Some(event) = receiver.recv().await {
        let Some(write) = correlator.plan(&event) else { continue };
        if let Err(error) = carry_out(&client, &mut correlator, &event, write).await {
            tracing::debug!(%error, reason = event.reason, "an event could not be written");
        }
    }
}

async fn carry_out(client: &Client, correlator: &mut Correlator, event: &Event, write: Write) -> crate::Result<()> {
    let api = client.resource(&EVENT).in_namespace(namespace_of(&event.about));
    match write {
        Write::Create(object) => {
            api.create::<IgnoredAny>(&object).await?;
        }
        Write::Count { name, patch, object } => {
            let patched = api.patch::<IgnoredAny>(&name, Patch::merge(&patch)).await;
            match patched {
                // Events expire: the one we counted on may be gone.
                Err(error) if error.is_not_found() => {
                    correlator.forget(event);
                    api.create::<IgnoredAny>(&object).await?;
                }
                other => drop(other?),
            }
        }
    }
    Ok(())
}

/// Events about objects outside of namespaces are kept in `default`.
fn namespace_of(about: &ObjectReference) -> String {
    match about.namespace.as_str() {
        "" => "default".to_owned(),
        namespace => namespace.to_owned(),
    }
}

impl Event {
    /// The event as an object that has happened `count` times since `first`.
    fn to_value(&self, name: &str, message: &str, first: Moment, count: u32) -> Value {
        let mut involved = serde_json::Map::new();
        let about = &self.about;
        for (field, value) in [
            ("kind", &about.kind),
            ("namespace", &about.namespace),
            ("name", &about.name),
            ("uid", &about.uid),
            ("apiVersion", &about.api_version),
            ("resourceVersion", &about.resource_version),
            ("fieldPath", &about.field_path),
        ] {
            if !value.is_empty() {
                involved.insert(field.to_owned(), value.as_str().into());
            }
        }
        let mut source = serde_json::json!({"component": self.source.component});
        if !self.source.host.is_empty() {
            source["host"] = self.source.host.as_str().into();
        }
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace_of(about)},
            "involvedObject": involved,
            "reason": self.reason,
            "message": message,
            "source": source,
            "firstTimestamp": first.to_time(),
            "lastTimestamp": self.at.to_time(),
            "count": count,
            "type": self.kind.as_str(),
            "reportingComponent": self.source.component,
            "reportingInstance": self.source.host,
        })
    }
}
