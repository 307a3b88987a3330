use crate::{PROXY_VERBS, Resource, Subresource, Verb};

pub static POD: Resource = Resource::namespaced("", "v1", "Pod", "pods", "pod")
    .short(&["po"])
    .in_categories(&["all"])
    .with_subresources(&[
        Subresource::new("attach", &[Verb::Create, Verb::Get]).with_body("", "v1", "PodAttachOptions"),
        Subresource::new("binding", &[Verb::Create]).with_body("", "v1", "Binding"),
        Subresource::new("ephemeralcontainers", &[Verb::Get, Verb::Patch, Verb::Update]),
        Subresource::new("eviction", &[Verb::Create]).with_body("policy", "v1", "Eviction"),
        Subresource::new("exec", &[Verb::Create, Verb::Get]).with_body("", "v1", "PodExecOptions"),
        Subresource::new("log", &[Verb::Get]),
        Subresource::new("portforward", &[Verb::Create, Verb::Get]).with_body("", "v1", "PodPortForwardOptions"),
        Subresource::new("proxy", PROXY_VERBS).with_body("", "v1", "PodProxyOptions"),
        Subresource::new("resize", &[Verb::Get, Verb::Patch, Verb::Update]),
        Subresource::STATUS,
    ]);
