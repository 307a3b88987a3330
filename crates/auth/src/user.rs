//! A user as the rest of the system sees one.

use std::collections::BTreeMap;

use api::names;

/// Who makes a request. Names are opaque; only these prefixes and groups have a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Everyone who proved who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
/// May do everything, whatever the roles say.
pub const MASTERS: &str = "system:masters";
pub const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

impl User {
    pub fn new(name: impl Into<String>, groups: &[&str]) -> User {
        User {
            name: name.into(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        }
    }

    /// A component of the control plane, as a certificate with this name and these organisations would identify it.
    pub fn system(name: &str, groups: &[&str]) -> User {
        User::new(name, groups).authenticated()
    }

    /// Whoever sends no credentials.
    pub fn anonymous() -> User {
        User::new(ANONYMOUS, &[UNAUTHENTICATED])
    }

    /// The user of a service account; `uid` is the account's.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
        User {
            name: service_account_name(namespace, name),
            uid: uid.to_owned(),
            groups: vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")],
            extra: BTreeMap::new(),
        }
    }

    /// Adds the group that everyone with valid credentials is in.
    pub fn authenticated(mut self) -> User {
        if !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    /// The node this user is, if it is one.
    pub fn node_name(&self) -> Option<&str> {
        let name = self.name.strip_prefix(NODE_PREFIX)?;
        (self.is_in(NODES) && !name.is_empty()).then_some(name)
    }

    /// The namespace and name of the service account this user is, if it is one.
    pub fn as_service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
        let is_valid =
            names::dns1123_label(namespace, false).is_empty() && names::dns1123_subdomain(name, false).is_empty();
        is_valid.then_some((namespace, name))
    }
}

pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}
