use crate::{Resource, Subresource, Verb};

pub static SERVICE_ACCOUNT: Resource =
    Resource::namespaced("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount")
        .short(&["sa"])
        .with_subresources(&[Subresource::new("token", &[Verb::Create]).with_body(
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
        )]);
