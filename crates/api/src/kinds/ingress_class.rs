use crate::Resource;

pub static INGRESS_CLASS: Resource = Resource::cluster(
    "networking.k8s.io",
    "v1",
    "IngressClass",
    "ingressclasses",
    "ingressclass",
);
