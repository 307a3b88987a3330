use crate::Resource;

pub static ROLE_BINDING: Resource = Resource::namespaced(
    "rbac.authorization.k8s.io",
    "v1",
    "RoleBinding",
    "rolebindings",
    "rolebinding",
);
