use crate::{Resource, Subresource};

pub static REPLICATION_CONTROLLER: Resource = Resource::namespaced(
    "",
    "v1",
    "ReplicationController",
    "replicationcontrollers",
    "replicationcontroller",
)
.short(&["rc"])
.in_categories(&["all"])
.stored_at("controllers")
.with_subresources(&[Subresource::SCALE, Subresource::STATUS]);
