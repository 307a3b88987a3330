//! ClusterRole: what may be done.

use super::role::validate_rules;
use crate::names::path_segment;
use crate::{FieldError, Fields, Path, Problems, Resource, Rules, Value, validate_label_selector};

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
    fn validate(&self, role: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_rules(role, false, &mut problems);
        let aggregation = &role["aggregationRule"];
        let path = Path::new("aggregationRule");
        if aggregation.is_object() && aggregation.list("clusterRoleSelectors").is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            problems.required(&path, "clusterRoleSelectors", detail);
        }
        for (index, selector) in aggregation.list("clusterRoleSelectors").iter().enumerate() {
            let path = path.child("clusterRoleSelectors").index(index);
            let found = validate_label_selector(selector, &path);
            if !found.is_empty() {
                problems.extend(found);
                problems.invalid(&path, "", selector.clone(), "invalid label selector.");
            }
        }
        problems.into_vec()
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
    }
}
