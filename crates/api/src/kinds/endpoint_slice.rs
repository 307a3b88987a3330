use crate::Resource;

pub static ENDPOINT_SLICE: Resource = Resource::namespaced(
    "discovery.k8s.io",
    "v1",
    "EndpointSlice",
    "endpointslices",
    "endpointslice",
);
