use crate::{Resource, Subresource};

pub static RESOURCE_CLAIM: Resource = Resource::namespaced(
    "resource.k8s.io",
    "v1",
    "ResourceClaim",
    "resourceclaims",
    "resourceclaim",
)
.with_subresources(&[Subresource::STATUS]);
