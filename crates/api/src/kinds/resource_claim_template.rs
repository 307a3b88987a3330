use crate::Resource;

pub static RESOURCE_CLAIM_TEMPLATE: Resource = Resource::namespaced(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    "resourceclaimtemplate",
);
