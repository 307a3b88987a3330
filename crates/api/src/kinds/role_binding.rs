//! RoleBinding: who may do what a role says, in one namespace.

use crate::names::{dns1123_subdomain, path_segment};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

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

    fn validate(&self, binding: &Value) -> Vec<FieldError> {
        validate_binding(binding, &["Role", "ClusterRole"], true).into_vec()
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

pub(super) fn validate_binding(binding: &Value, kinds: &[&str], is_namespaced: bool) -> Problems {
    let mut problems = Problems::default();
    let (role, path) = (&binding["roleRef"], Path::new("roleRef"));
    problems.optional_one_of(role, &path, "apiGroup", &[RBAC_GROUP]);
    if role.text("kind").is_empty() {
        problems.extend([FieldError::not_supported(&path.child("kind"), "", kinds)]);
    }
    problems.optional_one_of(role, &path, "kind", kinds);
    if problems.needs(role, &path, "name") {
        problems.form(&path, "name", role.text("name"), path_segment(role.text("name"), false));
    }
    for (index, subject) in binding.list("subjects").iter().enumerate() {
        validate_subject(
            subject,
            is_namespaced,
            &Path::new("subjects").index(index),
            &mut problems,
        );
    }
    problems
}

fn validate_subject(subject: &Value, is_namespaced: bool, path: &Path, problems: &mut Problems) {
    let name = subject.text("name");
    problems.needs(subject, path, "name");
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                problems.form(path, "name", name, dns1123_subdomain(name, false));
            }
            if !subject.text("apiGroup").is_empty() {
                problems.optional_one_of(subject, path, "apiGroup", &[""]);
            }
            if !is_namespaced && subject.text("namespace").is_empty() {
                problems.required(path, "namespace", "");
            }
        }
        "User" | "Group" => problems.optional_one_of(subject, path, "apiGroup", &[RBAC_GROUP]),
        kind => problems.extend([FieldError::not_supported(
            &path.child("kind"),
            kind,
            &["ServiceAccount", "User", "Group"],
        )]),
    }
}

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    print::text("Role", "The role that is granted."),
    AGE,
    print::text("Users", "The users it is granted to.").wide(),
    print::text("Groups", "The groups it is granted to.").wide(),
    print::text("ServiceAccounts", "The service accounts it is granted to.").wide(),
];
