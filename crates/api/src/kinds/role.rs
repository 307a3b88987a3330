//! Role: what may be done in one namespace.

use crate::names::path_segment;
use crate::{FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static ROLE: Resource =
    Resource::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles", "role").with_rules(&RoleRules);

struct RoleRules;

impl Rules for RoleRules {
    fn validate(&self, role: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_rules(role, true, &mut problems);
        problems.into_vec()
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
    }
}

/// Rules name verbs, and either resources with their groups or, in cluster roles, paths.
pub(super) fn validate_rules(role: &Value, is_namespaced: bool, problems: &mut Problems) {
    for (index, rule) in role.list("rules").iter().enumerate() {
        let path = Path::new("rules").index(index);
        if rule.list("verbs").is_empty() {
            problems.required(&path, "verbs", "verbs must contain at least one value");
        }
        let resources = ["apiGroups", "resources", "resourceNames"]
            .iter()
            .any(|field| !rule.list(field).is_empty());
        if !rule.list("nonResourceURLs").is_empty() {
            let paths = rule["nonResourceURLs"].clone();
            if is_namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                problems.invalid(&path, "nonResourceURLs", paths.clone(), detail);
            }
            if resources {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                problems.invalid(&path, "nonResourceURLs", paths, detail);
            }
            continue;
        }
        if rule.list("apiGroups").is_empty() {
            problems.required(&path, "apiGroups", "resource rules must supply at least one api group");
        }
        if rule.list("resources").is_empty() {
            problems.required(&path, "resources", "resource rules must supply at least one resource");
        }
    }
}
