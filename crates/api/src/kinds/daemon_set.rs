use crate::{Resource, Subresource};

pub static DAEMON_SET: Resource = Resource::namespaced("apps", "v1", "DaemonSet", "daemonsets", "daemonset")
    .short(&["ds"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::STATUS]);
