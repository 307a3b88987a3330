use crate::Resource;

pub static CLUSTER_ROLE_BINDING: Resource = Resource::cluster(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
    "clusterrolebinding",
);
