use crate::{Resource, Subresource, Verb};

pub static NAMESPACE: Resource = Resource::cluster("", "v1", "Namespace", "namespaces", "namespace")
    .short(&["ns"])
    .with_verbs(&[
        Verb::Create,
        Verb::Delete,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ])
    .with_subresources(&[Subresource::new("finalize", &[Verb::Update]), Subresource::STATUS]);
