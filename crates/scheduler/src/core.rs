//! The scheduler without IO: changes go in, decisions come out.

mod attempt;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::budgets::{Budget, Budgets};
use crate::classes::{self, Classes};
use crate::dice::Dice;
use crate::failure::Failure;
use crate::framework::{Change, Preemption, Row};
use crate::node::Node;
use crate::nodes::Nodes;
use crate::pod::{Class, Pod};
use crate::profile::Profile;
use crate::queue::{Pending, SchedulingQueue};
use crate::queued_pod::QueuedPod;
use crate::volumes::{Assignment, Volumes};
use crate::waiting::WaitingPods;

pub struct Core {
    /// Pods that name a scheduler of none of these are none of our business, but count on their nodes.
    profiles: Vec<Active>,
    pub nodes: Nodes,
    pub queue: SchedulingQueue,
    pub waiting: WaitingPods,
    pub budgets: Budgets,
    dice: Dice,
    /// Where pods are, or were decided to be, by UID.
    placed: HashMap<String, Placed>,
}

struct Active {
    profile: Profile,
    classes: Classes,
}

struct Placed {
    node: String,
    /// Set while the binding is waited for or being written and the watch has not shown it yet: the pod as it was seen
    /// last, so that nothing is lost should the binding fail.
    assumed: Option<Arc<Pod>>,
}

/// What was decided for a pod.
pub struct Decision {
    pub queued: QueuedPod,
    pub result: Result<String, Box<Failure>>,
    /// What becomes of the node that is nominated for the pod.
    pub nomination: Nomination,
    /// Others that have to leave for it.
    pub preemption: Option<Preemption>,
    /// Pods of lower priority that lose their nomination to it.
    pub displaced: Vec<Arc<Pod>>,
    /// What was decided about its claims.
    pub volumes: Vec<Assignment>,
    /// The plugins that carry the decision out.
    pub rows: &'static [Row],
}

/// A change of `status.nominatedNodeName`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nomination {
    #[default]
    Keep,
    Clear,
    Set(String),
}

impl Core {
    /// A scheduler with one or more profiles.
    pub fn new(profiles: Vec<Profile>, seed: u64) -> Core {
        let active = |profile| Active {
            profile,
            classes: Classes::default(),
        };
        Core {
            profiles: profiles.into_iter().map(active).collect(),
            nodes: Nodes::default(),
            queue: SchedulingQueue::default(),
            waiting: WaitingPods::default(),
            budgets: Budgets::default(),
            dice: Dice::new(seed),
            placed: HashMap::new(),
        }
    }

    pub fn node_changed(&mut self, old: Option<&Node>, new: Option<&Node>, now: Instant) {
        match (old, new) {
            (Some(old), Some(new)) if old.looks_like(new) => {}
            (_, Some(node)) => {
                let id = self.nodes.set(node);
                self.unblock(Change::Node(id), now);
            }
            (Some(node), None) => self.nodes.remove(&node.metadata.name),
            (None, None) => {}
        }
    }

    pub fn pod_changed(&mut self, old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>, now: Instant) {
        // After a gap in the watch another pod can stand under the same name.
        let old = old.filter(|old| {
            let replaced = new.is_some_and(|new| new.uid() != old.uid());
            if replaced {
                self.forget(old.uid(), now);
            }
            !replaced
        });
        match (new, old) {
            (Some(pod), _) if !pod.node_name.is_empty() => self.place(pod, now),
            (Some(pod), _) if pod.metadata.is_deleting() => self.forget(pod.uid(), now),
            (Some(pod), old) => self.enqueue(old, pod, now),
            (None, Some(pod)) => self.forget(pod.uid(), now),
            (None, None) => {}
        }
    }

    pub fn budget_changed(&mut self, old: Option<&Arc<Budget>>, new: Option<&Arc<Budget>>) {
        self.budgets.changed(old, new);
    }

    /// When [`Core::next`] may have something that it does not have now.
    pub fn wake_at(&self) -> Option<Instant> {
        self.queue.wake_at().into_iter().chain(self.waiting.wake_at()).min()
    }

    /// The pods without a node.
    pub fn pending(&self) -> Pending {
        self.queue.pending()
    }

    /// The binding could not be written: the pod is where it was before, and tried again.
    pub fn binding_failed(&mut self, queued: QueuedPod, now: Instant) {
        if let Some(pod) = self.release(queued.pod.uid(), now) {
            self.follow_nomination(None, &pod);
            self.queue.failed(QueuedPod { pod, ..queued }, now);
        }
    }

    /// The victims of a preemption could not be made to leave: the pod may choose again.
    pub fn preemption_failed(&mut self, uid: &str, now: Instant) {
        self.nodes.nominations.forget_victims(uid);
        self.queue.unblock(|queued| queued.pod.uid() == uid, now);
    }

    /// Takes an assumed pod off its node again. Returns it as it was seen last; nothing if the watch has shown it bound
    /// or gone meanwhile.
    fn release(&mut self, uid: &str, now: Instant) -> Option<Arc<Pod>> {
        let pod = self.placed.get(uid)?.assumed.clone()?;
        self.forget(uid, now);
        Some(pod)
    }

    fn follow_nomination(&mut self, old: Option<&Arc<Pod>>, pod: &Arc<Pod>) {
        self.nodes.nominations.follow(old.map(|old| &**old), pod);
    }

    fn enqueue(&mut self, old: Option<&Arc<Pod>>, pod: &Arc<Pod>, now: Instant) {
        if let Some(placed) = self.placed.get_mut(pod.uid()) {
            // Its binding is under way; this is what it falls back to.
            if let Some(assumed) = &mut placed.assumed {
                *assumed = pod.clone();
            }
            return;
        }
        self.follow_nomination(old, pod);
        if profile_of(&self.profiles, pod).is_none() {
            return;
        }
        let gated = self.rows(pod).iter().any(|row| row.plugin.pre_enqueue(pod).is_err());
        self.queue.add(pod.clone(), gated, now);
    }

    fn place(&mut self, pod: &Arc<Pod>, now: Instant) {
        let uid = pod.uid();
        self.queue.remove(uid);
        self.nodes.nominations.remove(uid);
        if let Some(placed) = self.placed.get_mut(uid)
            && placed.node == pod.node_name
        {
            let assumed = placed.assumed.take();
            self.waiting.remove(uid);
            // What a placed pod asks for can change: it can be resized.
            let known = self.nodes.remove_pod(&pod.node_name, uid);
            let id = self.nodes.add_pod(&pod.node_name, pod.clone());
            self.nodes.volumes.forget_promise(uid);
            if known.is_some() && assumed.is_none() {
                self.unblock(Change::Node(id), now);
            }
            return;
        }
        self.forget(uid, now);
        self.nodes.add_pod(&pod.node_name, pod.clone());
        self.unblock(Change::Company, now);
        let placed = Placed {
            node: pod.node_name.clone(),
            assumed: None,
        };
        self.placed.insert(uid.to_owned(), placed);
    }

    fn forget(&mut self, uid: &str, now: Instant) {
        self.queue.remove(uid);
        self.waiting.remove(uid);
        self.nodes.nominations.remove(uid);
        let Some(placed) = self.placed.remove(uid) else {
            return;
        };
        if let Some(pod) = &placed.assumed {
            let rows = self.rows(pod).iter().rev();
            rows.for_each(|row| row.plugin.unreserve(pod, &mut self.nodes, &placed.node));
        }
        self.nodes.nominations.victim_left(&placed.node, uid);
        if let Some(id) = self.nodes.remove_pod(&placed.node, uid) {
            self.unblock(Change::Node(id), now);
        }
    }

    pub fn namespace_changed(&mut self, name: &str, labels: Option<BTreeMap<String, String>>, now: Instant) {
        match labels {
            Some(labels) => self.nodes.namespace_labels.insert(name.to_owned(), labels),
            None => self.nodes.namespace_labels.remove(name),
        };
        self.unblock(Change::Company, now);
    }

    /// Something about storage changed.
    pub fn storage_changed(&mut self, change: Change<'_>, apply: impl FnOnce(&mut Volumes), now: Instant) {
        apply(&mut self.nodes.volumes);
        self.unblock(change, now);
    }

    /// Tries again the pods for which the plugins that rejected them see hope in the change. Pods alike are asked
    /// about once.
    fn unblock(&mut self, change: Change<'_>, now: Instant) {
        if let Change::Node(id) = change
            && !self.nodes.present[id]
        {
            return;
        }
        let (profiles, nodes) = (&self.profiles, &self.nodes);
        let mut known: HashMap<(&str, Class), bool> = HashMap::new();
        let hopeful = |queued: &QueuedPod| {
            let pod = &queued.pod;
            let Some(profile) = profile_of(profiles, pod) else {
                return false;
            };
            let rows = profiles[profile].profile.rows;
            let rejecting = |row: &&Row| queued.rejected_by.contains(row.plugin.name());
            let mut hopeful = rows
                .iter()
                .filter(rejecting)
                .filter(|row| row.plugin.hint(pod, &change));
            let Change::Node(id) = change else {
                return hopeful.next().is_some();
            };
            match hopeful.next() {
                None if !queued.rejected_by.is_empty() => return false,
                Some(row) if row.plugin.hint(pod, &Change::Company) => return true,
                _ if hopeful.any(|row| row.plugin.hint(pod, &Change::Company)) => return true,
                _ => {}
            }
            let name = profiles[profile].profile.scheduler_name.as_str();
            *known.entry((name, pod.class)).or_insert_with(|| {
                let filters = classes::filters(rows, pod, nodes);
                classes::filter(&filters, pod, nodes, id).is_ok()
            })
        };
        self.queue.unblock(hopeful, now);
    }

    /// The plugins for a pod; none for pods of other schedulers.
    fn rows(&self, pod: &Pod) -> &'static [Row] {
        let profile = profile_of(&self.profiles, pod);
        profile.map_or(&[], |profile| self.profiles[profile].profile.rows)
    }
}

/// The profile that a pod names. One that names none, as pods of tests do, gets the first.
fn profile_of(profiles: &[Active], pod: &Pod) -> Option<usize> {
    let name = &pod.scheduler_name;
    let named = |active: &Active| name.is_empty() || active.profile.scheduler_name == *name;
    profiles.iter().position(named)
}

#[cfg(test)]
mod tests;
