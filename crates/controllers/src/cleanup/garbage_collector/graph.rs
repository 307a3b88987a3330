//! Who owns whom, as far as the watches have told.

use std::collections::{BTreeMap, BTreeSet};

use api::{ObjectMeta, OwnerReference, Resource};

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

#[derive(Default)]
pub struct Graph {
    nodes: BTreeMap<String, Node>,
    dependents: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone)]
pub struct Node {
    /// `None` until a watch has told of the object itself: until then only its dependents name it.
    pub resource: Option<&'static Resource>,
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub owners: Vec<OwnerReference>,
    pub is_deleting: bool,
    /// Its deletion waits for that of its dependents.
    pub is_deleting_dependents: bool,
    /// Its deletion waits for its dependents to be released.
    pub is_orphaning: bool,
}

impl Node {
    pub fn is_observed(&self) -> bool {
        self.resource.is_some()
    }

    pub fn of(resource: &'static Resource, metadata: &ObjectMeta) -> Node {
        Node {
            resource: Some(resource),
            api_version: resource.api_version(),
            kind: resource.kind.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            owners: metadata.owner_references.clone(),
            is_deleting: metadata.is_deleting(),
            is_deleting_dependents: deletes_dependents(metadata),
            is_orphaning: metadata.is_deleting() && has_finalizer(metadata, ORPHAN),
        }
    }
}

pub fn deletes_dependents(metadata: &ObjectMeta) -> bool {
    metadata.is_deleting() && has_finalizer(metadata, FOREGROUND)
}

fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().any(|name| name == finalizer)
}

impl Graph {
    pub fn node(&self, uid: &str) -> Option<Node> {
        self.nodes.get(uid).cloned()
    }

    /// Those that only their dependents tell of.
    pub fn unobserved(&self) -> Vec<String> {
        let unobserved = self.nodes.values().filter(|node| !node.is_observed());
        unobserved.map(|node| node.uid.clone()).collect()
    }

    /// The observed objects that name this one as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<Node> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.nodes.get(uid)).cloned().collect()
    }

    /// An object is there, or changed. Returns the objects to be looked at because of it.
    pub fn set(&mut self, node: Node) -> Vec<String> {
        let uid = node.uid.clone();
        let mut touched = Vec::new();
        let before = self
            .nodes
            .get(&uid)
            .map(|known| known.owners.clone())
            .unwrap_or_default();
        for owner in before.iter().filter(|owner| !names(&node.owners, &owner.uid)) {
            self.unlink(&owner.uid, &uid);
            // An owner that waited for this one need not wait any more.
            touched.push(owner.uid.clone());
        }
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
            match self.nodes.get(&owner.uid) {
                None => {
                    self.nodes.insert(owner.uid.clone(), Node::named_by(&node, owner));
                    touched.push(owner.uid.clone());
                }
                Some(known) if known.is_deleting_dependents => touched.push(uid.clone()),
                // A reference that contradicts what is known of its owner may be forged: look at it closely.
                Some(known) if known.kind != owner.kind || !known.is_in_reach_of(&node) => touched.push(uid.clone()),
                Some(_) => {}
            }
        }
        if node.is_deleting_dependents {
            touched.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
        }
        if node.is_deleting_dependents || node.is_orphaning {
            touched.push(uid.clone());
        }
        self.nodes.insert(uid, node);
        touched
    }

    /// An object is gone. Returns the objects to be looked at because of it.
    pub fn remove(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        let mut touched: Vec<String> = Vec::new();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            if self
                .nodes
                .get(&owner.uid)
                .is_some_and(|owner| owner.is_deleting_dependents)
            {
                touched.push(owner.uid.clone());
            }
        }
        touched.extend(self.dependents.get(uid).into_iter().flatten().cloned());
        touched
    }

    /// Forgets all objects of a resource that is no longer served.
    pub fn remove_resource(&mut self, resource: &'static Resource) -> Vec<String> {
        let of = |node: &&Node| node.resource.is_some_and(|one| std::ptr::eq(one, resource));
        let uids: Vec<String> = self.nodes.values().filter(of).map(|node| node.uid.clone()).collect();
        uids.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
                // An owner that was only ever named by its dependents is of no interest without them.
                if self.nodes.get(owner).is_some_and(|node| !node.is_observed()) {
                    self.nodes.remove(owner);
                }
            }
        }
    }
}

impl Node {
    /// An owner as a dependent describes it.
    fn named_by(dependent: &Node, owner: &OwnerReference) -> Node {
        Node {
            resource: None,
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: dependent.namespace.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            owners: Vec::new(),
            is_deleting: false,
            is_deleting_dependents: false,
            is_orphaning: false,
        }
    }

    /// Owners are in the same namespace as what they own, or in none.
    fn is_in_reach_of(&self, dependent: &Node) -> bool {
        self.namespace.is_empty() || self.namespace == dependent.namespace
    }
}

fn names(owners: &[OwnerReference], uid: &str) -> bool {
    owners.iter().any(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use api::kinds::pod::POD;
    use api::kinds::replica_set::REPLICA_SET;

    use super::*;
    use crate::model::Metadata;
    use crate::testing::object;

    fn node(resource: &'static Resource, yaml: &str) -> Node {
        Node::of(resource, &object::<Metadata>(yaml).metadata)
    }

    const SET: &str = "metadata: {name: set, namespace: default, uid: set}";
    const POD_OF_SET: &str = "metadata: {name: pod, namespace: default, uid: pod, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: set, uid: set}]}";

    #[test]
    fn when_an_owner_goes_its_dependents_are_looked_at() {
        let mut graph = Graph::default();
        assert_eq!(graph.set(node(&REPLICA_SET, SET)), [""; 0]);
        assert_eq!(graph.set(node(&POD, POD_OF_SET)), [""; 0]);
        assert_eq!(graph.remove("set"), ["pod"]);
    }

    #[test]
    fn an_owner_that_nobody_has_seen_is_looked_for() {
        let mut graph = Graph::default();
        assert_eq!(graph.set(node(&POD, POD_OF_SET)), ["set"]);
        assert!(!graph.node("set").unwrap().is_observed());
        // It appears: nothing to do.
        assert_eq!(graph.set(node(&REPLICA_SET, SET)), [""; 0]);
        // Without dependents only what was seen is remembered.
        graph.remove("pod");
        assert!(graph.node("set").is_some());
    }

    #[test]
    fn an_owner_that_waits_for_its_dependents_is_looked_at_with_each_of_them() {
        let mut graph = Graph::default();
        graph.set(node(&REPLICA_SET, SET));
        graph.set(node(&POD, POD_OF_SET));
        let waiting = "metadata: {name: set, namespace: default, uid: set, deletionTimestamp: x, finalizers: [foregroundDeletion]}";
        assert_eq!(graph.set(node(&REPLICA_SET, waiting)), ["pod", "set"]);
        assert_eq!(graph.remove("pod"), ["set"]);
    }
}
