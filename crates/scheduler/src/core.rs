//! The scheduler without IO: changes go in, decisions come out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use crate::classes::{self, Classes};
use crate::decide::{self, Dice, Failure};
use crate::framework::Row;
use crate::node::Node;
use crate::nodes::{NodeId, Nodes};
use crate::plugins;
use crate::pod::{Class, Pod};
use crate::queue::{QueuedPod, SchedulingQueue};

pub struct Core {
    rows: &'static [Row],
    /// Pods that name another scheduler are none of our business, but count on their nodes.
    scheduler_name: String,
    pub nodes: Nodes,
    pub queue: SchedulingQueue,
    classes: Classes,
    dice: Dice,
    /// Where pods are, or were decided to be, by UID.
    placed: HashMap<String, Placed>,
}

struct Placed {
    node: String,
    /// The binding is being written, and the watch has not shown it yet.
    assumed: bool,
}

/// What was decided for a pod.
pub struct Decision {
    pub queued: QueuedPod,
    pub result: Result<String, Box<Failure>>,
}

impl Core {
    pub fn new(scheduler_name: &str, seed: u64) -> Core {
        Core {
            rows: plugins::table(),
            scheduler_name: scheduler_name.to_owned(),
            nodes: Nodes::default(),
            queue: SchedulingQueue::default(),
            classes: Classes::default(),
            dice: Dice::new(seed),
            placed: HashMap::new(),
        }
    }

    pub fn node_changed(&mut self, old: Option<&Node>, new: Option<&Node>, now: Instant) {
        match (old, new) {
            (Some(old), Some(new)) if old.looks_like(new) => {}
            (_, Some(node)) => {
                let id = self.nodes.set(node);
                self.unblock(id, now);
            }
            (Some(node), None) => self.nodes.remove(&node.metadata.name),
            (None, None) => {}
        }
    }

    pub fn pod_changed(&mut self, old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>, now: Instant) {
        match (new, old) {
            (Some(pod), _) if !pod.node_name.is_empty() => self.place(pod, now),
            (Some(pod), _) if pod.metadata.is_deleting() => self.forget(&pod.metadata.uid, now),
            (Some(pod), _) => self.enqueue(pod, now),
            (None, Some(pod)) => self.forget(&pod.metadata.uid, now),
            (None, None) => {}
        }
    }

    /// Decides for the next pod, and counts it on its node at once: the binding is written later.
    pub fn next(&mut self, now: Instant) -> Option<Decision> {
        let queued = self.queue.pop(now)?;
        let pod = &queued.pod;
        let decided = decide::decide(self.rows, pod, &self.nodes, &mut self.classes, &mut self.dice);
        let result = decided.and_then(|id| self.reserve(pod, &self.nodes.name[id]));
        match &result {
            Ok(node) => {
                self.nodes.add_pod(node, pod.clone());
                let placed = Placed {
                    node: node.clone(),
                    assumed: true,
                };
                self.placed.insert(pod.metadata.uid.clone(), placed);
                self.unblock_companions(now);
            }
            Err(failure) => {
                let mut queued = queued.clone();
                queued.rejected_by = failure.plugins.clone();
                self.queue.unschedulable(queued, now);
            }
        }
        Some(Decision { queued, result })
    }

    /// The binding could not be written: the pod is where it was before, and tried again.
    pub fn binding_failed(&mut self, queued: QueuedPod, now: Instant) {
        let uid = queued.pod.metadata.uid.clone();
        let Some(placed) = self.placed.get(&uid).filter(|placed| placed.assumed) else {
            // The watch has shown it bound or gone meanwhile.
            return;
        };
        for row in self.rows {
            row.plugin.unreserve(&queued.pod, &placed.node);
        }
        self.forget(&uid, now);
        self.queue.failed(queued, now);
    }

    fn reserve(&self, pod: &Pod, node: &str) -> Result<String, Box<Failure>> {
        let agreed = self.rows.iter().try_for_each(|row| row.plugin.reserve(pod, node));
        let agreed = agreed.and_then(|()| self.rows.iter().try_for_each(|row| row.plugin.permit(pod, node)));
        match agreed {
            Ok(()) => Ok(node.to_owned()),
            Err(rejection) => {
                self.rows.iter().for_each(|row| row.plugin.unreserve(pod, node));
                Err(Box::new(Failure::late(pod, &self.nodes, &rejection)))
            }
        }
    }

    fn enqueue(&mut self, pod: &Arc<Pod>, now: Instant) {
        let ours = pod.scheduler_name == self.scheduler_name || pod.scheduler_name.is_empty();
        if !ours || self.placed.contains_key(&pod.metadata.uid) {
            return;
        }
        let gated = self.rows.iter().any(|row| row.plugin.pre_enqueue(pod).is_err());
        self.queue.add(pod.clone(), gated, now);
    }

    fn place(&mut self, pod: &Arc<Pod>, now: Instant) {
        let uid = &pod.metadata.uid;
        self.queue.remove(uid);
        if let Some(placed) = self.placed.get_mut(uid)
            && placed.node == pod.node_name
        {
            let assumed = std::mem::take(&mut placed.assumed);
            // What a placed pod asks for can change: it can be resized.
            let known = self.nodes.remove_pod(&pod.node_name, uid);
            let id = self.nodes.add_pod(&pod.node_name, pod.clone());
            if known.is_some() && !assumed {
                self.unblock(id, now);
            }
            return;
        }
        self.forget(uid, now);
        self.nodes.add_pod(&pod.node_name, pod.clone());
        self.unblock_companions(now);
        let placed = Placed {
            node: pod.node_name.clone(),
            assumed: false,
        };
        self.placed.insert(uid.clone(), placed);
    }

    fn forget(&mut self, uid: &str, now: Instant) {
        self.queue.remove(uid);
        if let Some(placed) = self.placed.remove(uid)
            && let Some(id) = self.nodes.remove_pod(&placed.node, uid)
        {
            self.unblock(id, now);
        }
    }

    pub fn namespace_changed(&mut self, name: &str, labels: Option<BTreeMap<String, String>>, now: Instant) {
        match labels {
            Some(labels) => self.nodes.namespace_labels.insert(name.to_owned(), labels),
            None => self.nodes.namespace_labels.remove(name),
        };
        self.unblock_companions(now);
    }

    /// A pod came: those that wait for the company of others are tried again.
    fn unblock_companions(&mut self, now: Instant) {
        let rows = self.rows;
        self.queue.unblock(|queued| waits_for_others(rows, queued), now);
    }

    /// Something about a node changed: pods that now fit on it are tried again. Pods alike are asked about once.
    fn unblock(&mut self, id: NodeId, now: Instant) {
        if !self.nodes.present[id] {
            return;
        }
        let (rows, nodes) = (self.rows, &self.nodes);
        let mut known: HashMap<Class, bool> = HashMap::new();
        let fits = |queued: &QueuedPod| {
            let pod = &queued.pod;
            let fits = *known.entry(pod.class).or_insert_with(|| {
                let filters = classes::filters(rows, pod, nodes);
                classes::filter(&filters, pod, nodes, id).is_ok()
            });
            fits || waits_for_others(rows, queued)
        };
        self.queue.unblock(fits, now);
    }
}

/// Whether the pod was rejected because of where other pods are.
fn waits_for_others(rows: &[Row], queued: &QueuedPod) -> bool {
    let mut around = rows.iter().filter(|row| row.plugin.looks_at_all_pods());
    around.any(|row| queued.rejected_by.contains(row.plugin.name()))
}

#[cfg(test)]
mod tests;
