//! RoleBinding: who may do what a role says, in one namespace.

use crate::names::path_segment;
use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static ROLE_BINDING: Resource = Resource::namespaced(
    "rbac.authorization.k8s.io",
    "v1",
    "RoleBinding",
    "rolebindings",
    "rolebinding",
)
.with_rules(&RoleBindingRules);

struct RoleBindingRules;

impl Rules for RoleBindingRules {
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

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn default_binding(binding: &mut Value) {
    binding.ensure("roleRef").fill("apiGroup", RBAC_GROUP);
    for subject in binding.list_mut("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.fill("apiGroup", RBAC_GROUP);
        }
    }
}

pub(super) fn cells(binding: &Value, now: i64) -> Vec<Value> {
    let role = format!(
        "{}/{}",
        binding["roleRef"].text("kind"),
        binding["roleRef"].text("name")
    );
    let subjects = |kind: &str| {
        let named: Vec<String> = binding
            .list("subjects")
            .iter()
            .filter(|subject| subject.text("kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", subject.text("namespace"), subject.text("name")),
                _ => subject.text("name").to_owned(),
            })
            .collect();
        Value::from(named.join(", "))
    };
    let mut cells = vec![print::name(binding), role.into(), print::age(binding, now)];
    cells.extend(["User", "Group", "ServiceAccount"].map(subjects));
    cells
}

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    print::text("Role", "The role that is granted."),
    AGE,
    print::text("Users", "The users it is granted to.").wide(),
    print::text("Groups", "The groups it is granted to.").wide(),
    print::text("ServiceAccounts", "The service accounts it is granted to.").wide(),
];
