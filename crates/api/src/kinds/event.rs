use crate::Resource;

pub static EVENT: Resource = Resource::namespaced("", "v1", "Event", "events", "event").short(&["ev"]);

pub static EVENTS_EVENT: Resource = Resource::namespaced("events.k8s.io", "v1", "Event", "events", "event")
    .short(&["ev"])
    .stored_as("", "v1");
