use crate::{Resource, Subresource};

pub static CRON_JOB: Resource = Resource::namespaced("batch", "v1", "CronJob", "cronjobs", "cronjob")
    .short(&["cj"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::STATUS]);
