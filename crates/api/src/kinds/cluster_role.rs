//! ClusterRole: what may be done.

use crate::names::path_segment;
use crate::{Resource, Rules};

pub static CLUSTER_ROLE: Resource = Resource::cluster(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRole",
    "clusterroles",
    "clusterrole",
)
.with_rules(&ClusterRoleRules);

struct ClusterRoleRules;

impl Rules for ClusterRoleRules {
    fn create_on_update(&self) -> bool {
        true
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
    }
}
