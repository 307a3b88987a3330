use crate::{Resource, Subresource};

pub static CUSTOM_RESOURCE_DEFINITION: Resource = Resource::cluster(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
)
.short(&["crd", "crds"])
.in_categories(&["api-extensions"])
.stored_at("apiextensions.k8s.io/customresourcedefinitions")
.with_subresources(&[Subresource::STATUS]);
