//! Revisions: which template is the newest, under which number, and how many old ones are kept.

use api::kinds::replica_set::REPLICA_SET;

use super::sets::Set;
use super::{Planner, REVISION};
use crate::plan::{Action, Delete};
use crate::workloads::template;

/// The numbers that a set had before it became the newest again.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// How long that list of numbers may get.
const MAX_HISTORY_BYTES: usize = 2000;
const DEFAULT_HISTORY_LIMIT: i64 = 10;

/// Annotations of the Deployment that its ReplicaSets do not share.
const OWN_ANNOTATIONS: &[&str] = &[
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    REVISION,
    REVISION_HISTORY,
    "deprecated.deployment.rollback.to",
    "kubectl.kubernetes.io/last-applied-configuration",
];

impl Planner<'_> {
    /// Numbers the current set, if there is one, and gives it the Deployment's annotations.
    pub fn adopt_revision(&mut self) {
        let newest = self.sets.old().map(revision).max().unwrap_or(0) + 1;
        let deployment = self.deployment;
        let Some(current) = self.sets.current_mut() else { return };
        for (name, value) in &deployment.metadata.annotations {
            if !OWN_ANNOTATIONS.contains(&name.as_str()) {
                current.annotate(name, value);
            }
        }
        let before = current.annotation(REVISION);
        if revision(current) < newest {
            current.annotate(REVISION, &newest.to_string());
            if let Some(before) = before {
                let history = current.annotation(REVISION_HISTORY);
                current.annotate(REVISION_HISTORY, &appended(history.as_deref(), &before));
            }
        }
        current.set_min_ready_seconds(deployment.spec.min_ready_seconds);
    }

    /// Makes sure that there is a set of the current template. Returns false when its name is taken by another, which
    /// the next plan avoids by counting the collision.
    pub fn ensure_current(&mut self) -> bool {
        if self.sets.current().is_none() {
            let hash = template::hash(&self.deployment.template(), self.collisions);
            let name = format!("{}-{hash}", self.deployment.metadata.name);
            if self.view.names.contains(&name) {
                self.collisions += 1;
                return false;
            }
            self.sets.create(self.deployment, &hash);
            if let Some(current) = self.sets.current_mut() {
                current.annotate_size(self.deployment);
            }
        }
        self.adopt_revision();
        true
    }

    /// Deletes old sets beyond the limit, the oldest revisions first, but none that still has pods.
    pub fn clean_up(&mut self) {
        let limit = self
            .deployment
            .spec
            .revision_history_limit
            .unwrap_or(DEFAULT_HISTORY_LIMIT);
        let mut old: Vec<&Set> = self.sets.old().collect();
        old.retain(|set| set.source().is_some_and(|source| !source.metadata.is_deleting()));
        let excess = (old.len() as i64 - limit).max(0) as usize;
        old.sort_by_key(|set| (revision(set), set.created, set.name.clone()));
        let deletions = old.into_iter().take(excess).filter_map(|set| {
            let source = set.source()?;
            let observed = source.status["observedGeneration"].as_i64().unwrap_or(0);
            let idle = set.replicas == 0 && set.status.replicas == 0 && observed >= source.metadata.generation;
            idle.then(|| Action::Delete(Delete::new(&REPLICA_SET, &source.metadata)))
        });
        let deletions: Vec<Action> = deletions.collect();
        self.actions.extend(deletions);
    }
}

fn revision(set: &Set) -> i64 {
    let text = set.annotation(REVISION);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn appended(history: Option<&str>, revision: &str) -> String {
    let mut numbers: Vec<&str> = history
        .unwrap_or_default()
        .split(',')
        .filter(|text| !text.is_empty())
        .collect();
    numbers.push(revision);
    while numbers.iter().map(|number| number.len() + 1).sum::<usize>() > MAX_HISTORY_BYTES {
        numbers.remove(0);
    }
    numbers.join(",")
}
