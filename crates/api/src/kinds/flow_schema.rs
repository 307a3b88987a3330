use crate::{Resource, Subresource};

pub static FLOW_SCHEMA: Resource = Resource::cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "FlowSchema",
    "flowschemas",
    "flowschema",
)
.with_subresources(&[Subresource::STATUS]);
