use crate::{Resource, Verb};

pub static COMPONENT_STATUS: Resource =
    Resource::cluster("", "v1", "ComponentStatus", "componentstatuses", "componentstatus")
        .short(&["cs"])
        .with_verbs(&[Verb::Get, Verb::List])
        .not_stored();
