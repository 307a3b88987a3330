use crate::{Resource, Subresource};

pub static PRIORITY_LEVEL_CONFIGURATION: Resource = Resource::cluster(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
    "prioritylevelconfigurations",
    "prioritylevelconfiguration",
)
.with_subresources(&[Subresource::STATUS]);
