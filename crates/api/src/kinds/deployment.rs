use crate::{Resource, Subresource};

pub static DEPLOYMENT: Resource = Resource::namespaced("apps", "v1", "Deployment", "deployments", "deployment")
    .short(&["deploy"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS]);
