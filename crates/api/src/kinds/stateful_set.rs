use crate::{Resource, Subresource};

pub static STATEFUL_SET: Resource = Resource::namespaced("apps", "v1", "StatefulSet", "statefulsets", "statefulset")
    .short(&["sts"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS]);
