//! The revisions of a StatefulSet: the one that its pods are changed to, and the one that they come from.

use std::collections::HashSet;
use std::sync::Arc;

use api::kinds::stateful_set::STATEFUL_SET;
use api::{Fields, Value};

use super::model::StatefulSet;
use super::revision_of;
use crate::model::Pod;
use crate::plan::Action;
use crate::workloads::history::{self, HASH_LABEL, Revision};

/// A template under the name of its revision, which is also the label of its pods.
#[derive(Clone)]
pub struct Version {
    pub name: String,
    pub template: Value,
}

pub struct History {
    pub current: Version,
    pub update: Version,
    pub collisions: i64,
    all: Vec<Arc<Revision>>,
    /// What it takes to have the update's revision, under the highest number.
    change: Option<Change>,
}

enum Change {
    Create { hash: String, number: i64 },
    Renumber { revision: Arc<Revision>, number: i64 },
}

/// Finds the revisions among the set's own; the newest one is of the current template, if necessary by a change.
pub fn find(set: &StatefulSet, mut owned: Vec<Arc<Revision>>) -> History {
    history::sort(&mut owned);
    let template = set.template();
    let wanted = history::data(&template);
    let number = owned.last().map_or(0, |revision| revision.revision) + 1;
    let mut collisions = set.status.number("collisionCount");
    let equal = owned.iter().rev().find(|revision| revision.data() == wanted).cloned();
    let (name, change) = match equal {
        Some(equal) => {
            let name = equal.metadata.name.clone();
            let is_newest = owned.last().is_some_and(|newest| newest.data() == wanted);
            let renumber = Change::Renumber {
                revision: equal,
                number,
            };
            (name, (!is_newest).then_some(renumber))
        }
        None => {
            let (name, hash) = free_name(set, &wanted, &owned, &mut collisions);
            (name, Some(Change::Create { hash, number }))
        }
    };
    let update = Version { name, template };
    let current = owned
        .iter()
        .find(|revision| revision.metadata.name == set.status.text("currentRevision"));
    History {
        current: current.map_or_else(|| update.clone(), |revision| Version::of(revision)),
        update,
        collisions,
        all: owned,
        change,
    }
}

/// A name that another revision has is avoided by counting the collision.
fn free_name(set: &StatefulSet, data: &Value, owned: &[Arc<Revision>], collisions: &mut i64) -> (String, String) {
    loop {
        let hash = history::hash(data, *collisions);
        let name = history::name(&set.metadata.name, &hash);
        if !owned.iter().any(|revision| revision.metadata.name == name) {
            return (name, hash);
        }
        *collisions += 1;
    }
}

impl Version {
    fn of(revision: &Revision) -> Version {
        Version {
            name: revision.metadata.name.clone(),
            template: revision.template(),
        }
    }
}

impl History {
    pub fn action(&self, set: &StatefulSet) -> Option<Action> {
        Some(match self.change.as_ref()? {
            Change::Renumber { revision, number } => history::renumber(revision, *number),
            Change::Create { hash, number } => {
                let owner = (&STATEFUL_SET, &set.metadata);
                history::create(
                    owner,
                    &self.update.template,
                    &self.update.name,
                    (HASH_LABEL, hash),
                    *number,
                )
            }
        })
    }

    /// Deletes revisions beyond the limit that neither the set nor a pod uses.
    pub fn trim(&self, set: &StatefulSet, pods: &[(i64, Arc<Pod>)]) -> Vec<Action> {
        fn name(revision: &Revision) -> &str {
            &revision.metadata.name
        }
        let mut live: HashSet<&str> = pods.iter().map(|(_, pod)| revision_of(pod)).collect();
        live.extend([self.current.name.as_str(), self.update.name.as_str()]);
        history::trim(&self.all, &live, set.spec.revision_history_limit, name)
    }
}
