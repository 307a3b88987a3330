//! The revisions of a DaemonSet's template.

use std::collections::HashSet;
use std::sync::Arc;

use api::Fields;
use api::kinds::controller_revision::CONTROLLER_REVISION;
use api::kinds::daemon_set::DAEMON_SET;
use api::kinds::pod::POD;
use serde_json::json;

use super::model::DaemonSet;
use crate::model::Pod;
use crate::plan::{Action, Delete, Patch};
use crate::workloads::history::{self, REVISION_LABEL, Revision};
use crate::workloads::template;

pub struct History {
    /// The label of pods of the current template.
    pub hash: String,
    pub collisions: i64,
    /// All but the current revision, the oldest first.
    pub old: Vec<Arc<Revision>>,
    /// What it takes to have the current revision, under the highest number.
    pub actions: Vec<Action>,
}

/// Finds the revision of the current template among the set's own, or makes one.
pub fn find(set: &DaemonSet, mut owned: Vec<Arc<Revision>>, pods: &[Arc<Pod>]) -> History {
    history::sort(&mut owned);
    let wanted = history::data(&set.template());
    let (mut current, old): (Vec<_>, Vec<_>) = owned.into_iter().partition(|revision| revision.data() == wanted);
    let number = old.last().map_or(0, |revision| revision.revision) + 1;
    let collisions = set.status.number("collisionCount");
    let mut history = History {
        hash: String::new(),
        collisions,
        old,
        actions: Vec::new(),
    };
    let Some(newest) = current.pop() else {
        history.create(set, number);
        return history;
    };
    history.hash = hash_of(&newest).to_owned();
    if !newest.metadata.labels.contains_key(REVISION_LABEL) {
        let label = json!({"metadata": {"labels": {REVISION_LABEL: newest.metadata.name}}});
        let patch = Patch::new(&CONTROLLER_REVISION, &newest.metadata, label);
        history.actions.push(Action::Patch(patch));
    } else if newest.revision < number {
        history.actions.push(history::renumber(&newest, number));
    }
    // Of several with the same content one is enough, once its pods have its label.
    for double in &current {
        let of_double = pods
            .iter()
            .filter(|pod| pod.metadata.labels.get(REVISION_LABEL).map(String::as_str) == Some(hash_of(double)));
        for pod in of_double {
            let label = json!({"metadata": {"labels": {REVISION_LABEL: history.hash}}});
            history
                .actions
                .push(Action::Patch(Patch::new(&POD, &pod.metadata, label)));
        }
        history
            .actions
            .push(Action::Delete(Delete::new(&CONTROLLER_REVISION, &double.metadata)));
    }
    history
}

impl History {
    /// A name that another revision has is avoided by counting the collision.
    fn create(&mut self, set: &DaemonSet, number: i64) {
        let template = set.template();
        let mut name;
        loop {
            self.hash = template::hash(&template, self.collisions);
            name = format!("{}-{}", set.metadata.name, self.hash);
            if !self.old.iter().any(|revision| revision.metadata.name == name) {
                break;
            }
            self.collisions += 1;
        }
        let owner = (&DAEMON_SET, &set.metadata);
        self.actions.push(history::create(
            owner,
            &template,
            &name,
            (REVISION_LABEL, &self.hash),
            number,
        ));
    }
}

/// Deletes old revisions beyond the limit that no pod is of.
pub fn trim(set: &DaemonSet, old: &[Arc<Revision>], pods: &[Arc<Pod>]) -> Vec<Action> {
    let live: HashSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.metadata.labels.get(REVISION_LABEL).map(String::as_str))
        .collect();
    history::trim(old, &live, set.spec.revision_history_limit, hash_of)
}

/// What pods of a revision are labelled with.
fn hash_of(revision: &Revision) -> &str {
    let metadata = &revision.metadata;
    metadata.labels.get(REVISION_LABEL).unwrap_or(&metadata.name)
}
