use crate::Resource;

pub static NETWORK_POLICY: Resource = Resource::namespaced(
    "networking.k8s.io",
    "v1",
    "NetworkPolicy",
    "networkpolicies",
    "networkpolicy",
)
.short(&["netpol"]);
