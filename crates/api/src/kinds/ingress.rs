use crate::{Resource, Subresource};

pub static INGRESS: Resource = Resource::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress")
    .short(&["ing"])
    .stored_at("ingress")
    .with_subresources(&[Subresource::STATUS]);
