use crate::Resource;

pub static CLUSTER_ROLE: Resource = Resource::cluster(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRole",
    "clusterroles",
    "clusterrole",
);
