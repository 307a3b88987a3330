use crate::{Resource, Subresource};

pub static JOB: Resource = Resource::namespaced("batch", "v1", "Job", "jobs", "job")
    .in_categories(&["all"])
    .with_subresources(&[Subresource::STATUS]);
