use crate::{PROXY_VERBS, Resource, Subresource};

pub static SERVICE: Resource = Resource::namespaced("", "v1", "Service", "services", "service")
    .short(&["svc"])
    .in_categories(&["all"])
    .stored_at("services/specs")
    .with_subresources(&[
        Subresource::new("proxy", PROXY_VERBS).with_body("", "v1", "ServiceProxyOptions"),
        Subresource::STATUS,
    ]);
