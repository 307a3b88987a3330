//! Pods that wait for others to leave a node: their place is kept from pods of lower priority.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::pod::Pod;

#[derive(Default)]
pub struct Nominations {
    by_uid: HashMap<String, Nomination>,
    by_node: HashMap<String, BTreeSet<String>>,
}

struct Nomination {
    pod: Arc<Pod>,
    node: String,
    /// Pods that were chosen to leave, until they are seen to.
    victims: BTreeSet<String>,
}

impl Nominations {
    /// The pod will go to the node when the victims have left.
    pub fn set(&mut self, pod: Arc<Pod>, node: &str, victims: BTreeSet<String>) {
        let uid = pod.uid().to_owned();
        self.remove(&uid);
        self.by_node.entry(node.to_owned()).or_default().insert(uid.clone());
        let node = node.to_owned();
        self.by_uid.insert(uid, Nomination { pod, node, victims });
    }

    /// Follows what the API says of a pod without a node. Our own decision is known here before the API shows it, so
    /// only a nomination that was there and is gone ends it.
    pub fn follow(&mut self, old: Option<&Pod>, pod: &Arc<Pod>) {
        let said = |pod: &Pod| pod.nominated_node.clone();
        let before = old.map(said).unwrap_or_default();
        let known = self.by_uid.get_mut(pod.uid());
        match known {
            Some(known) if known.node == pod.nominated_node || (pod.nominated_node == before) => {
                known.pod = pod.clone();
            }
            _ if pod.nominated_node.is_empty() => self.remove(pod.uid()),
            _ => self.set(pod.clone(), &pod.nominated_node, BTreeSet::new()),
        }
    }

    pub fn remove(&mut self, uid: &str) {
        let Some(nomination) = self.by_uid.remove(uid) else {
            return;
        };
        if let Some(there) = self.by_node.get_mut(&nomination.node) {
            there.remove(uid);
            if there.is_empty() {
                self.by_node.remove(&nomination.node);
            }
        }
    }

    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.by_uid.get(uid).map(|nomination| nomination.node.as_str())
    }

    /// Whether the victim was chosen for the pod and has not been seen leaving.
    pub fn has_victim(&self, uid: &str, victim: &str) -> bool {
        let nomination = self.by_uid.get(uid);
        nomination.is_some_and(|nomination| nomination.victims.contains(victim))
    }

    /// The victims could not be made to leave.
    pub fn forget_victims(&mut self, uid: &str) {
        if let Some(nomination) = self.by_uid.get_mut(uid) {
            nomination.victims.clear();
        }
    }

    /// A pod has gone, whoever waited for that.
    pub fn victim_left(&mut self, node: &str, victim: &str) {
        for uid in self.by_node.get(node).into_iter().flatten() {
            if let Some(nomination) = self.by_uid.get_mut(uid) {
                nomination.victims.remove(victim);
            }
        }
    }

    /// Whether any nomination has a say in where the pod goes: its own, or one that comes before it.
    pub fn concern(&self, pod: &Pod) -> bool {
        let before = |other: &Nomination| other.pod.uid() == pod.uid() || other.pod.priority >= pod.priority;
        self.by_uid.values().any(before)
    }

    /// The pods nominated to the node that come before the pod.
    pub fn before(&self, pod: &Pod, node: &str) -> Vec<Arc<Pod>> {
        let others = self.on(node).filter(|other| other.uid() != pod.uid());
        others.filter(|other| other.priority >= pod.priority).cloned().collect()
    }

    /// The pods nominated to the node that must look for another when this one takes it.
    pub fn after(&self, pod: &Pod, node: &str) -> Vec<Arc<Pod>> {
        self.on(node)
            .filter(|other| other.priority < pod.priority)
            .cloned()
            .collect()
    }

    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(String::as_str)
    }

    /// What is known, for tests and messages.
    pub fn all(&self) -> BTreeMap<&str, &str> {
        let all = self.by_uid.iter();
        all.map(|(uid, nomination)| (uid.as_str(), nomination.node.as_str()))
            .collect()
    }

    fn on(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let uids = self.by_node.get(node).into_iter().flatten();
        uids.filter_map(|uid| self.by_uid.get(uid))
            .map(|nomination| &nomination.pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, priority: i32, nominated: &str) -> Arc<Pod> {
        let mut pod = Pod {
            priority,
            nominated_node: nominated.to_owned(),
            ..Pod::default()
        };
        pod.metadata.uid = uid.to_owned();
        Arc::new(pod)
    }

    fn names(pods: Vec<Arc<Pod>>) -> Vec<String> {
        pods.iter().map(|pod| pod.uid().to_owned()).collect()
    }

    #[test]
    fn equals_and_betters_come_before_a_pod_and_lower_ones_after() {
        let mut nominations = Nominations::default();
        for (uid, priority) in [("high", 9), ("same", 5), ("low", 1)] {
            nominations.set(pod(uid, priority, ""), "one", BTreeSet::new());
        }
        let this = pod("this", 5, "");
        assert_eq!(names(nominations.before(&this, "one")), ["high", "same"]);
        assert_eq!(names(nominations.after(&this, "one")), ["low"]);
        assert_eq!(names(nominations.before(&this, "two")), Vec::<String>::new());
        assert!(nominations.concern(&this));
        assert!(!nominations.concern(&pod("other", 10, "")));
    }

    #[test]
    fn a_decision_holds_until_the_api_has_shown_it_and_taken_it_back() {
        let mut nominations = Nominations::default();
        nominations.set(pod("p", 1, ""), "one", BTreeSet::new());
        // An update that was under way before the nomination was written.
        nominations.follow(Some(&pod("p", 1, "")), &pod("p", 1, ""));
        assert_eq!(nominations.node_of("p"), Some("one"));
        nominations.follow(Some(&pod("p", 1, "")), &pod("p", 1, "one"));
        assert_eq!(nominations.node_of("p"), Some("one"));
        nominations.follow(Some(&pod("p", 1, "one")), &pod("p", 1, ""));
        assert_eq!(nominations.node_of("p"), None);
        // Somebody else may nominate, too.
        nominations.follow(None, &pod("p", 1, "two"));
        assert_eq!(nominations.all(), BTreeMap::from([("p", "two")]));
    }
}
