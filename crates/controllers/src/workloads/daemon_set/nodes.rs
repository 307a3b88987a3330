//! One pod on every node that the template fits, and none elsewhere.

use std::sync::Arc;
use std::time::Duration;

use api::kinds::daemon_set::DAEMON_SET;
use client::{EventType, ObjectReference};

use super::{MAX_CHANGES, Planner};
use crate::model::Pod;
use crate::nodes::node_fit::Fit;
use crate::plan::{Action, Event};

impl Planner<'_> {
    /// Creates what is missing and deletes what is too much, misplaced or finished.
    pub fn manage(&mut self) {
        let mut missing: Vec<String> = Vec::new();
        let mut excess: Vec<Arc<Pod>> = Vec::new();
        for (node, fit) in self.fits.clone() {
            let name = &node.metadata.name;
            let pods = self.pods_on(name).to_vec();
            match fit {
                Fit { runs: true, .. } if pods.is_empty() => missing.push(name.clone()),
                Fit { stays: true, .. } => excess.extend(self.excess(name, &pods)),
                Fit { stays: false, .. } => excess.extend(pods.into_iter().filter(|pod| !pod.metadata.is_deleting())),
            }
        }
        excess.extend(self.stranded());
        excess.truncate(MAX_CHANGES);
        missing.truncate(MAX_CHANGES);
        excess.iter().for_each(|pod| self.delete(pod));
        missing.iter().for_each(|node| self.create_on(node));
    }

    /// Pods that wait for a node which is no more: no scheduler will ever place them.
    fn stranded(&self) -> Vec<Arc<Pod>> {
        let known = |name: &str| self.fits.iter().any(|(node, _)| node.metadata.name == name);
        let gone = self.pods.iter().filter(|(node, _)| !known(node));
        let waiting = gone
            .flat_map(|(_, pods)| pods)
            .filter(|pod| pod.spec.node_name.is_empty());
        waiting.filter(|pod| !pod.metadata.is_deleting()).cloned().collect()
    }

    /// What may stay of the pods on a node is one, or one of each template while they change hands.
    fn excess(&mut self, node: &str, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let mut excess: Vec<Arc<Pod>> = Vec::new();
        let mut running: Vec<&Arc<Pod>> = Vec::new();
        for pod in pods.iter().filter(|pod| !pod.metadata.is_deleting()) {
            match pod.status.phase.as_str() {
                "Failed" => {
                    let wait = self.view.patience.get(&pod.metadata.uid).copied().unwrap_or_default();
                    if wait > Duration::ZERO {
                        self.plan.again_after(wait);
                        continue;
                    }
                    self.tell_of_finished(node, pod, EventType::Warning, "FailedDaemonPod", "failed", "kill");
                    excess.push(pod.clone());
                }
                "Succeeded" => {
                    self.tell_of_finished(
                        node,
                        pod,
                        EventType::Normal,
                        "SucceededDaemonPod",
                        "succeeded",
                        "delete",
                    );
                    excess.push(pod.clone());
                }
                _ => running.push(pod),
            }
        }
        if !self.set.allows_surge() {
            excess.extend(running.into_iter().skip(1).cloned());
            return excess;
        }
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.into_iter().partition(|pod| self.is_current(pod));
        let handed_over = match (new.first(), old.first()) {
            (Some(new), Some(old)) => !old.is_ready() || self.is_available(new),
            _ => false,
        };
        excess.extend(old.into_iter().skip(usize::from(!handed_over)).cloned());
        excess.extend(new.into_iter().skip(1).cloned());
        excess
    }

    fn tell_of_finished(
        &mut self,
        node: &str,
        pod: &Pod,
        kind: EventType,
        reason: &'static str,
        how: &str,
        what: &str,
    ) {
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        self.act(Action::Event(Event {
            about: ObjectReference::new(&DAEMON_SET, &self.set.metadata),
            kind,
            reason,
            message: format!("Found {how} daemon pod {namespace}/{name} on node {node}, will try to {what} it"),
        }));
    }
}
