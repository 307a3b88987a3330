use crate::{Resource, Subresource};

pub static RESOURCE_QUOTA: Resource =
    Resource::namespaced("", "v1", "ResourceQuota", "resourcequotas", "resourcequota")
        .short(&["quota"])
        .with_subresources(&[Subresource::STATUS]);
