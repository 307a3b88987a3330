use crate::{Resource, Subresource};

pub static API_SERVICE: Resource = Resource::cluster(
    "apiregistration.k8s.io",
    "v1",
    "APIService",
    "apiservices",
    "apiservice",
)
.in_categories(&["api-extensions"])
.stored_at("apiregistration.k8s.io/apiservices")
.with_subresources(&[Subresource::STATUS]);
