//! Who makes a request.

use std::collections::BTreeMap;

/// An authenticated user: a person, a node, a service account or nobody in particular.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whoever sends no credentials.
    pub fn anonymous() -> User {
        User {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..User::default()
        }
    }

    /// A component of the control plane, as a certificate with this name and organisation would identify it.
    pub fn system(name: &str, groups: &[&str]) -> User {
        let groups = groups
            .iter()
            .copied()
            .chain(["system:authenticated"])
            .map(str::to_owned)
            .collect();
        User {
            name: name.to_owned(),
            groups,
            ..User::default()
        }
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}
