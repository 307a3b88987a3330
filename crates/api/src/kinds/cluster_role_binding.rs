//! ClusterRoleBinding: who may do what a cluster role says, everywhere.

use super::role_binding::{COLUMNS, cells, default_binding};
use crate::names::path_segment;
use crate::{Column, Resource, Rules, Value};

pub static CLUSTER_ROLE_BINDING: Resource = Resource::cluster(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
    "clusterrolebinding",
)
.with_rules(&ClusterRoleBindingRules);

struct ClusterRoleBindingRules;

impl Rules for ClusterRoleBindingRules {
    fn default(&self, binding: &mut Value) {
        default_binding(binding);
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, binding: &Value, now: i64) -> Vec<Value> {
        cells(binding, now)
    }
}
