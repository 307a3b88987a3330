use crate::Resource;

pub static ROLE: Resource = Resource::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles", "role");
