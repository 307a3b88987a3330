//! Role: what may be done in one namespace.

use crate::names::path_segment;
use crate::{Resource, Rules};

pub static ROLE: Resource =
    Resource::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles", "role").with_rules(&RoleRules);

struct RoleRules;

impl Rules for RoleRules {
    fn create_on_update(&self) -> bool {
        true
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
    }
}
