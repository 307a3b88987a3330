//! Role-based access: who is bound to which roles, and what those allow.
//!
//! Roles and bindings are pushed in one by one as they change. Bindings are indexed by subject, so that a request only
//! looks at its own user's roles. Aggregated cluster roles are resolved here as well: their rules count at once, whether
//! or not a controller has written them into the object yet.

mod index;
mod rule;

use api::{LabelSelector, Value};
use parking_lot::RwLock;

use super::{Attributes, Authorizer, Decision};
use crate::User;
use index::{Binding, Index, RoleRef, Subject};

pub use rule::Rule;

/// The access rules of a cluster.
#[derive(Default)]
pub struct Rbac {
    index: RwLock<Index>,
}

/// What a user may do in a namespace, for a SelfSubjectRulesReview.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserRules {
    pub rules: Vec<Rule>,
    /// Why the list may be incomplete.
    pub errors: Vec<String>,
}

impl Rbac {
    /// Takes in a role or binding that was created or changed. `resource` is its plural name.
    pub fn set(&self, resource: &str, object: &Value) {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let mut index = self.index.write();
        match resource {
            "roles" => index.set_role(&namespace, &name, Rule::parse_all(&object["rules"])),
            "clusterroles" => {
                let aggregation = &object["aggregationRule"]["clusterRoleSelectors"];
                let selectors: Vec<LabelSelector> = serde_json::from_value(aggregation.clone()).unwrap_or_default();
                let labels = serde_json::from_value(metadata["labels"].clone()).unwrap_or_default();
                index.set_cluster_role(&name, Rule::parse_all(&object["rules"]), labels, &selectors);
            }
            "rolebindings" | "clusterrolebindings" => index.set_binding(Binding::parse(&namespace, &name, object)),
            _ => {}
        }
    }

    /// Forgets a role or binding. `namespace` is empty for those of the cluster.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let mut index = self.index.write();
        match resource {
            "roles" => index.remove_role(namespace, name),
            "clusterroles" => index.remove_cluster_role(name),
            "rolebindings" | "clusterrolebindings" => index.remove_binding(namespace, name),
            _ => {}
        }
    }

    /// Everything a user may do in a namespace, or across the cluster when it is empty.
    pub fn rules_of(&self, user: &User, namespace: &str) -> UserRules {
        let mut found = UserRules::default();
        self.index.read().visit(user, namespace, |_, _, rules| {
            match rules {
                Ok(rule) => found.rules.push(rule.clone()),
                Err(error) => found.errors.push(error),
            }
            false
        });
        found
    }

    /// The rules of a role, or `None` when there is no such role. `namespace` is empty for cluster roles.
    pub fn role(&self, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        self.index.read().rules_of_role(namespace, name)
    }

    /// Those of the wanted rules that a user does not hold, broken down: granting them would be an escalation.
    pub fn uncovered(&self, user: &User, namespace: &str, wanted: &[Rule]) -> Vec<Rule> {
        let held = self.rules_of(user, namespace).rules;
        let parts = wanted.iter().flat_map(Rule::parts);
        parts
            .filter(|part| !held.iter().any(|rule| rule.covers(part)))
            .collect()
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        let mut reason = None;
        let mut errors = Vec::new();
        self.index.read().visit(
            attributes.user,
            attributes.namespace,
            |binding, subject, rule| match rule {
                Ok(rule) if rule.allows(attributes) => {
                    reason = Some(allowed_by(binding, subject));
                    true
                }
                Ok(_) => false,
                Err(error) => {
                    errors.push(error);
                    false
                }
            },
        );
        match (reason, errors.as_slice()) {
            (Some(reason), _) => Decision::Allow(reason),
            (None, []) => Decision::NoOpinion(String::new()),
            (None, [error]) => Decision::NoOpinion(format!("RBAC: {error}")),
            (None, errors) => Decision::NoOpinion(format!("RBAC: [{}]", errors.join(", "))),
        }
    }
}

fn allowed_by(binding: &Binding, subject: &Subject) -> String {
    let RoleRef { is_cluster, name: role } = &binding.role;
    let role_kind = if *is_cluster { "ClusterRole" } else { "Role" };
    let (kind, of) = match binding.namespace.as_ref() {
        "" => ("ClusterRoleBinding", format!("{:?}", binding.name)),
        namespace => ("RoleBinding", format!("\"{}/{namespace}\"", binding.name)),
    };
    format!("RBAC: allowed by {kind} {of} of {role_kind} {role:?} to {subject}")
}

#[cfg(test)]
mod tests;
