use crate::{Resource, Verb};

pub static BINDING: Resource = Resource::namespaced("", "v1", "Binding", "bindings", "binding")
    .with_verbs(&[Verb::Create])
    .not_stored();
