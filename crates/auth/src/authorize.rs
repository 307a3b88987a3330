//! Answers whether a user may do something.

mod abac;
pub mod configuration;
pub mod node;
pub mod rbac;
pub mod review;

use api::selector::Selector;
use api::{Error, Reason};

use crate::User;
use crate::user::MASTERS;

pub use abac::{Abac, PolicyFileError};
pub use node::NodeAuthorizer;
pub use rbac::Rbac;

/// What is asked for. Empty texts mean that the request has no such part.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// `get`, `list`, `create`, … for resources; the method in lower case for paths.
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub path: &'a str,
    pub is_resource: bool,
    /// The field selector of a list, watch or delete of a collection.
    pub field_selector: Option<&'a Selector>,
    /// Its label selector.
    pub label_selector: Option<&'a Selector>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow(String),
    /// Nobody after this one is asked.
    Deny(String),
    NoOpinion(String),
}

/// One way to decide.
pub trait Authorizer: Send + Sync {
    fn authorize(&self, attributes: &Attributes) -> Decision;
}

/// Allows the group that no role can take rights from, so that a broken role does not lock everyone out.
pub struct PrivilegedGroup;

/// Allows everything, as `--authorization-mode=AlwaysAllow` does.
pub struct AlwaysAllow;

pub struct AlwaysDeny;

impl Authorizer for PrivilegedGroup {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        if attributes.user.is_in(MASTERS) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }
}

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _attributes: &Attributes) -> Decision {
        Decision::Allow(String::new())
    }
}

impl Authorizer for AlwaysDeny {
    fn authorize(&self, _attributes: &Attributes) -> Decision {
        Decision::NoOpinion("Everything is forbidden.".to_owned())
    }
}

/// The error a client gets when it may not do what it asked for.
pub fn forbidden(attributes: &Attributes, reason: &str) -> Error {
    let mut why = explanation(attributes);
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let qualified = match attributes.group {
        "" => attributes.resource.to_owned(),
        group => format!("{}.{group}", attributes.resource),
    };
    let message = match (qualified.as_str(), attributes.name) {
        ("", _) => format!("forbidden: {why}"),
        (resource, "") => format!("{resource} is forbidden: {why}"),
        (resource, name) => format!("{resource} {name:?} is forbidden: {why}"),
    };
    let mut error = Error::new(Reason::Forbidden, message);
    let details = error.details();
    details.group = attributes.group.to_owned();
    details.kind = attributes.resource.to_owned();
    details.name = attributes.name.to_owned();
    error
}

fn explanation(attributes: &Attributes) -> String {
    let Attributes {
        verb,
        group,
        namespace,
        path,
        ..
    } = attributes;
    let user = &attributes.user.name;
    if !attributes.is_resource {
        return format!("User {user:?} cannot {verb} path {path:?}");
    }
    let resource = match attributes.subresource {
        "" => attributes.resource.to_owned(),
        subresource => format!("{}/{subresource}", attributes.resource),
    };
    let scope = match *namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
}

impl<'a> Attributes<'a> {
    /// A request for a resource, to be completed with what else it has.
    pub fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Attributes<'a> {
        Attributes {
            user,
            verb,
            group,
            version: "",
            resource,
            subresource: "",
            namespace: "",
            name: "",
            path: "",
            is_resource: true,
            field_selector: None,
            label_selector: None,
        }
    }

    /// A request for a path that is not a resource's.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Attributes<'a> {
        Attributes {
            path,
            is_resource: false,
            ..Attributes::resource(user, verb, "", "")
        }
    }

    pub fn named(mut self, namespace: &'a str, name: &'a str) -> Attributes<'a> {
        self.namespace = namespace;
        self.name = name;
        self
    }

    pub fn subresource(mut self, subresource: &'a str) -> Attributes<'a> {
        self.subresource = subresource;
        self
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn masters_may_do_everything() {
        let admin = User::new("admin", &["system:masters"]);
        let jane = User::new("jane", &[]);
        let ask = |user| PrivilegedGroup.authorize(&Attributes::resource(user, "get", "", "pods"));
        assert_eq!(ask(&admin), Decision::Allow(String::new()));
        assert_eq!(ask(&jane), Decision::NoOpinion(String::new()));
    }

    #[test]
    fn a_refusal_says_who_what_and_where() {
        let jane = User::new("jane", &[]);
        let pods = Attributes::resource(&jane, "get", "", "pods").named("default", "web");
        expect![[r#"pods "web" is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "default""#]]
            .assert_eq(&forbidden(&pods, "").message);
        let scale = Attributes::resource(&jane, "update", "apps", "deployments").subresource("scale");
        expect![[r#"deployments.apps is forbidden: User "jane" cannot update resource "deployments/scale" in API group "apps" at the cluster scope: because"#]]
            .assert_eq(&forbidden(&scale, "because").message);
        expect![[r#"forbidden: User "jane" cannot get path "/metrics""#]]
            .assert_eq(&forbidden(&Attributes::path(&jane, "get", "/metrics"), "").message);
    }
}
