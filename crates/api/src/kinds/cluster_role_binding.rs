//! ClusterRoleBinding: who may do what a cluster role says, everywhere.

use super::role_binding::{COLUMNS, cells, default_binding, validate_binding};
use crate::names::path_segment;
use crate::{Column, FieldError, Path, Problems, Resource, Rules, Value};

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

    fn validate(&self, binding: &Value) -> Vec<FieldError> {
        validate_binding(binding, &["ClusterRole"], false).into_vec()
    }

    /// What a binding grants does not change, only to whom.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if new["roleRef"] != old["roleRef"] {
            problems.invalid(
                &Path::new("roleRef"),
                "",
                new["roleRef"].clone(),
                "cannot change roleRef",
            );
        }
        problems.into_vec()
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
