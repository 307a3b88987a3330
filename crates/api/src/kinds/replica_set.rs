use crate::{Resource, Subresource};

pub static REPLICA_SET: Resource = Resource::namespaced("apps", "v1", "ReplicaSet", "replicasets", "replicaset")
    .short(&["rs"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS]);
