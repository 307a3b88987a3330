use crate::{PROXY_VERBS, Resource, Subresource};

pub static NODE: Resource = Resource::cluster("", "v1", "Node", "nodes", "node")
    .short(&["no"])
    .stored_at("minions")
    .with_subresources(&[
        Subresource::new("proxy", PROXY_VERBS).with_body("", "v1", "NodeProxyOptions"),
        Subresource::STATUS,
    ]);
