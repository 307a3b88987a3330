//! Roles by name and bindings by subject.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use api::selector::Selector;
use api::{Fields, LabelSelector, Value};

use super::Rule;
use crate::User;
use crate::user::service_account_name;

/// Aggregated roles may aggregate aggregated roles; no sane chain is longer than this.
const AGGREGATION_DEPTH: usize = 8;

#[derive(Default)]
pub struct Index {
    cluster_roles: HashMap<Box<str>, ClusterRole>,
    /// By namespace; the bindings of the cluster are under the empty one.
    scopes: HashMap<Box<str>, Scope>,
    /// The cluster roles that aggregate others.
    aggregating: BTreeSet<Box<str>>,
}

#[derive(Default)]
struct Scope {
    roles: HashMap<Box<str>, Vec<Rule>>,
    bindings: HashMap<Box<str>, Arc<Binding>>,
    by_user: HashMap<Box<str>, Vec<Arc<Binding>>>,
    by_group: HashMap<Box<str>, Vec<Arc<Binding>>>,
}

#[derive(Default)]
struct ClusterRole {
    rules: Vec<Rule>,
    labels: BTreeMap<String, String>,
    selectors: Vec<Selector>,
    /// The cluster roles that the selectors pick.
    members: BTreeSet<Box<str>>,
}

pub struct Binding {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub role: RoleRef,
    subjects: Vec<Subject>,
}

pub struct RoleRef {
    pub is_cluster: bool,
    pub name: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    User(Box<str>),
    Group(Box<str>),
    /// With the user name that the account has.
    ServiceAccount {
        namespace: Box<str>,
        name: Box<str>,
        user: Box<str>,
    },
}

impl Binding {
    pub fn parse(namespace: &str, name: &str, object: &Value) -> Binding {
        let role = &object["roleRef"];
        Binding {
            namespace: namespace.into(),
            name: name.into(),
            role: RoleRef {
                is_cluster: role.text("kind") != "Role",
                name: role.text("name").into(),
            },
            subjects: object
                .list("subjects")
                .iter()
                .filter_map(|subject| Subject::parse(subject, namespace))
                .collect(),
        }
    }
}

impl Subject {
    fn parse(subject: &Value, namespace: &str) -> Option<Subject> {
        let name = subject.text("name");
        match subject.text("kind") {
            "User" => Some(Subject::User(name.into())),
            "Group" => Some(Subject::Group(name.into())),
            "ServiceAccount" => {
                let of = match subject.text("namespace") {
                    "" => namespace,
                    of => of,
                };
                // An account without a namespace is nobody.
                (!of.is_empty()).then(|| Subject::ServiceAccount {
                    namespace: of.into(),
                    name: name.into(),
                    user: service_account_name(of, name).into(),
                })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(name) => write!(formatter, "User {name:?}"),
            Subject::Group(name) => write!(formatter, "Group {name:?}"),
            Subject::ServiceAccount { namespace, name, .. } => {
                write!(formatter, "ServiceAccount \"{name}/{namespace}\"")
            }
        }
    }
}

impl Index {
    pub fn set_role(&mut self, namespace: &str, name: &str, rules: Vec<Rule>) {
        self.scopes
            .entry(namespace.into())
            .or_default()
            .roles
            .insert(name.into(), rules);
    }

    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.change_scope(namespace, |scope| {
            scope.roles.remove(name);
        });
    }

    pub fn set_cluster_role(
        &mut self,
        name: &str,
        rules: Vec<Rule>,
        labels: BTreeMap<String, String>,
        selectors: &[LabelSelector],
    ) {
        let selectors: Vec<Selector> = selectors.iter().map(Selector::from).collect();
        for aggregating in &self.aggregating {
            if let Some(role) = self
                .cluster_roles
                .get_mut(aggregating)
                .filter(|_| **aggregating != *name)
            {
                role.members.remove(name);
                if picks(&role.selectors, &labels) {
                    role.members.insert(name.into());
                }
            }
        }
        let others = self.cluster_roles.iter().filter(|(other, _)| ***other != *name);
        let members = others
            .filter(|(_, role)| picks(&selectors, &role.labels))
            .map(|(other, _)| other.clone())
            .collect();
        if selectors.is_empty() {
            self.aggregating.remove(name);
        } else {
            self.aggregating.insert(name.into());
        }
        let role = ClusterRole {
            rules,
            labels,
            selectors,
            members,
        };
        self.cluster_roles.insert(name.into(), role);
    }

    pub fn remove_cluster_role(&mut self, name: &str) {
        self.cluster_roles.remove(name);
        self.aggregating.remove(name);
        for aggregating in &self.aggregating {
            if let Some(role) = self.cluster_roles.get_mut(aggregating) {
                role.members.remove(name);
            }
        }
    }

    pub fn set_binding(&mut self, binding: Binding) {
        self.remove_binding(&binding.namespace.clone(), &binding.name.clone());
        let binding = Arc::new(binding);
        let scope = self.scopes.entry(binding.namespace.clone()).or_default();
        for subject in &binding.subjects {
            let (map, key) = match subject {
                Subject::User(user) | Subject::ServiceAccount { user, .. } => (&mut scope.by_user, user),
                Subject::Group(group) => (&mut scope.by_group, group),
            };
            let held = map.entry(key.clone()).or_default();
            if !held.iter().any(|other| Arc::ptr_eq(other, &binding)) {
                held.push(binding.clone());
            }
        }
        scope.bindings.insert(binding.name.clone(), binding);
    }

    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        self.change_scope(namespace, |scope| {
            let Some(binding) = scope.bindings.remove(name) else {
                return;
            };
            for subject in &binding.subjects {
                let (map, key) = match subject {
                    Subject::User(user) | Subject::ServiceAccount { user, .. } => (&mut scope.by_user, user),
                    Subject::Group(group) => (&mut scope.by_group, group),
                };
                if let Some(held) = map.get_mut(key) {
                    held.retain(|other| !Arc::ptr_eq(other, &binding));
                    if held.is_empty() {
                        map.remove(key);
                    }
                }
            }
        });
    }

    /// Changes a scope and drops it once it holds nothing.
    fn change_scope(&mut self, namespace: &str, change: impl FnOnce(&mut Scope)) {
        if let Some(scope) = self.scopes.get_mut(namespace) {
            change(scope);
            if scope.roles.is_empty() && scope.bindings.is_empty() {
                self.scopes.remove(namespace);
            }
        }
    }

    /// Shows the rules that a user has, those of the whole cluster first, until the visitor has seen enough. A role
    /// that does not exist is shown as an error.
    pub fn visit(
        &self,
        user: &User,
        namespace: &str,
        mut visitor: impl FnMut(&Binding, &Subject, Result<&Rule, String>) -> bool,
    ) {
        let namespaces = if namespace.is_empty() {
            &[""][..]
        } else {
            &["", namespace][..]
        };
        for scope in namespaces.iter().filter_map(|namespace| self.scopes.get(*namespace)) {
            let of_user = scope.by_user.get(user.name.as_str()).into_iter().flatten();
            let of_groups = user
                .groups
                .iter()
                .filter_map(|group| scope.by_group.get(group.as_str()))
                .flatten();
            for binding in of_user.chain(of_groups) {
                let Some(subject) = binding.subjects.iter().find(|subject| is(subject, user)) else {
                    continue;
                };
                let enough = match self.role(binding) {
                    Some(Role::Cluster(role)) => {
                        self.visit_cluster_role(role, 0, &mut |rule| visitor(binding, subject, Ok(rule)))
                    }
                    Some(Role::Namespaced(rules)) => rules.iter().any(|rule| visitor(binding, subject, Ok(rule))),
                    None => visitor(binding, subject, Err(role_not_found(&binding.role))),
                };
                if enough {
                    return;
                }
            }
        }
    }

    pub fn rules_of_role(&self, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        if !namespace.is_empty() {
            return self.scopes.get(namespace)?.roles.get(name).cloned();
        }
        let mut rules = Vec::new();
        self.visit_cluster_role(self.cluster_roles.get(name)?, 0, &mut |rule| {
            rules.push(rule.clone());
            false
        });
        Some(rules)
    }

    fn role<'a>(&'a self, binding: &Binding) -> Option<Role<'a>> {
        if binding.role.is_cluster {
            return self.cluster_roles.get(&binding.role.name).map(Role::Cluster);
        }
        let scope = self.scopes.get(&binding.namespace)?;
        scope.roles.get(&binding.role.name).map(|rules| Role::Namespaced(rules))
    }

    fn visit_cluster_role(&self, role: &ClusterRole, depth: usize, visitor: &mut dyn FnMut(&Rule) -> bool) -> bool {
        role.rules.iter().any(&mut *visitor)
            || depth < AGGREGATION_DEPTH
                && role
                    .members
                    .iter()
                    .filter_map(|member| self.cluster_roles.get(member))
                    .any(|member| self.visit_cluster_role(member, depth + 1, visitor))
    }
}

enum Role<'a> {
    Cluster(&'a ClusterRole),
    Namespaced(&'a [Rule]),
}

fn picks(selectors: &[Selector], labels: &BTreeMap<String, String>) -> bool {
    selectors.iter().any(|selector| selector.matches(labels))
}

fn is(subject: &Subject, user: &User) -> bool {
    match subject {
        Subject::User(name) => **name == *user.name,
        Subject::ServiceAccount { user: name, .. } => **name == *user.name,
        Subject::Group(group) => user.is_in(group),
    }
}

fn role_not_found(role: &RoleRef) -> String {
    let kind = if role.is_cluster { "clusterrole" } else { "role" };
    format!("{kind}.rbac.authorization.k8s.io {:?} not found", role.name)
}
