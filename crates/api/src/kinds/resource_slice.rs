use crate::Resource;

pub static RESOURCE_SLICE: Resource = Resource::cluster(
    "resource.k8s.io",
    "v1",
    "ResourceSlice",
    "resourceslices",
    "resourceslice",
);
