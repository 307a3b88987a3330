//! The order in which pods of a StatefulSet come, are replaced and go.

use std::sync::Arc;

use api::kinds::stateful_set::STATEFUL_SET;
use client::{EventType, ObjectReference};

use super::{Planner, revision_of};
use crate::model::Pod;
use crate::plan::{Action, Event};

/// Whether the walk goes on to the next pod.
#[derive(PartialEq, Eq)]
enum Step {
    Next,
    Stop,
}

pub fn is_ready(pod: &Pod) -> bool {
    pod.status.phase == "Running" && pod.is_ready()
}

fn is_healthy(pod: &Pod) -> bool {
    is_ready(pod) && !pod.metadata.is_deleting()
}

impl Planner<'_> {
    /// Every wanted pod there, then none beyond, then none of an old template.
    pub fn settle(&mut self) {
        let wanted = self.set.ordinals();
        for ordinal in wanted.clone() {
            if self.keep(ordinal) == Step::Stop {
                return;
            }
        }
        let beyond = self.pods.iter().filter(|(ordinal, _)| !wanted.contains(ordinal));
        let beyond: Vec<(i64, Arc<Pod>)> = beyond.rev().cloned().collect();
        for (ordinal, pod) in &beyond {
            self.mark_claims(*ordinal, Some(pod));
        }
        for (_, pod) in &beyond {
            if self.dismiss(pod) == Step::Stop {
                return;
            }
        }
        if self.set.is_rolling_update() {
            self.replace_old();
        }
    }

    fn pod(&self, ordinal: i64) -> Option<Arc<Pod>> {
        let found = self.pods.iter().find(|(known, _)| *known == ordinal);
        found.map(|(_, pod)| pod.clone())
    }

    /// An ordered set waits for each pod before it looks at the next.
    fn unless_ordered(&self) -> Step {
        match self.set.is_ordered() {
            true => Step::Stop,
            false => Step::Next,
        }
    }

    /// Brings one wanted pod about.
    fn keep(&mut self, ordinal: i64) -> Step {
        let Some(pod) = self.pod(ordinal) else {
            if !self.make_claims(ordinal) {
                // What was left by a pod of this name must be gone first.
                return Step::Stop;
            }
            self.create(ordinal);
            return self.unless_ordered();
        };
        if pod.is_finished() {
            if !pod.metadata.is_deleting() {
                self.tell_of_recreation(&pod);
                self.delete(&pod);
            }
            // The next one is made when this one is gone.
            return Step::Stop;
        }
        if pod.status.phase == "Pending" {
            self.make_claims(ordinal);
        }
        if pod.metadata.is_deleting() || !self.is_available(&pod) {
            return self.unless_ordered();
        }
        self.restore_identity(&pod, ordinal);
        self.mark_claims(ordinal, None);
        Step::Next
    }

    /// Takes down one pod beyond the wanted ones; an ordered set lets only healthy pods go, or the lowest sick one.
    fn dismiss(&mut self, pod: &Arc<Pod>) -> Step {
        if pod.metadata.is_deleting() {
            return self.unless_ordered();
        }
        let first_sick = self.pods.iter().find(|(_, pod)| !is_healthy(pod));
        let is_first_sick = first_sick.is_some_and(|(_, sick)| Arc::ptr_eq(sick, pod));
        if self.set.is_ordered() && !self.is_available(pod) && !is_first_sick {
            return Step::Stop;
        }
        self.delete(pod);
        self.unless_ordered()
    }

    /// Deletes pods of old templates from the highest ordinal down, as far as pods may be missing.
    fn replace_old(&mut self) {
        let first = self.set.start() + self.set.partition().unwrap_or(0);
        let update = self.history.update.name.clone();
        let wanted: Vec<(i64, Option<Arc<Pod>>)> = self
            .set
            .ordinals()
            .map(|ordinal| (ordinal, self.pod(ordinal)))
            .collect();
        let is_old = |pod: &Arc<Pod>| revision_of(pod) != update && !pod.metadata.is_deleting();
        // Old pods that are sick already need not be waited for: replacing them makes nothing worse.
        let missing = wanted.iter().filter(|(ordinal, pod)| match pod {
            Some(pod) if *ordinal >= first && is_old(pod) => false,
            Some(pod) => pod.metadata.is_deleting() || !self.is_available(pod),
            None => true,
        });
        let mut budget = self.set.max_unavailable() - missing.count() as i64;
        for (ordinal, pod) in wanted.iter().rev() {
            if *ordinal < first || budget <= 0 {
                return;
            }
            if let Some(pod) = pod.as_ref().filter(|pod| is_old(pod)) {
                self.delete(pod);
                budget -= 1;
            }
        }
    }

    fn tell_of_recreation(&mut self, pod: &Pod) {
        let (reason, how) = match pod.status.phase.as_str() {
            "Failed" => ("RecreatingFailedPod", "failed"),
            _ => ("RecreatingTerminatedPod", "terminated"),
        };
        let metadata = &self.set.metadata;
        let (namespace, set, name) = (&metadata.namespace, &metadata.name, &pod.metadata.name);
        self.plan.actions.push(Action::Event(Event {
            about: ObjectReference::new(&STATEFUL_SET, metadata),
            kind: EventType::Warning,
            reason,
            message: format!("StatefulSet {namespace}/{set} is recreating {how} Pod {name}"),
        }));
    }
}
