//! What if: pods come to and go from one node of the table, and everything is put back afterwards.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{NodeId, Nodes};
use crate::pod::Pod;

/// The table with changes to one node that end with this value. Nothing may remember what it sees by the table's
/// generation meanwhile, as that is put back too.
pub struct Trial<'a> {
    nodes: &'a mut Nodes,
    id: NodeId,
    changed: u64,
    generation: u64,
    undo: Vec<Undo>,
}

enum Undo {
    Add(Arc<Pod>),
    Remove(String),
}

impl Nodes {
    /// Begins a trial on a node that is present.
    pub fn trial(&mut self, id: NodeId) -> Trial<'_> {
        Trial {
            changed: self.changed[id],
            generation: self.generation,
            nodes: self,
            id,
            undo: Vec::new(),
        }
    }
}

impl Trial<'_> {
    pub fn add(&mut self, pod: Arc<Pod>) {
        self.undo.push(Undo::Remove(pod.uid().to_owned()));
        self.put(pod);
    }

    pub fn remove(&mut self, uid: &str) {
        if let Some(pod) = self.take(uid) {
            self.undo.push(Undo::Add(pod));
        }
    }

    fn put(&mut self, pod: Arc<Pod>) {
        let name = self.nodes.name[self.id].clone();
        self.nodes.add_pod(&name, pod);
    }

    fn take(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let pod = self.nodes.pods[self.id].get(uid).cloned()?;
        let name = self.nodes.name[self.id].clone();
        self.nodes.remove_pod(&name, uid);
        Some(pod)
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Add(pod) => self.put(pod),
                Undo::Remove(uid) => drop(self.take(&uid)),
            }
        }
        self.nodes.changed[self.id] = self.changed;
        self.nodes.generation = self.generation;
    }
}

impl Deref for Trial<'_> {
    type Target = Nodes;

    fn deref(&self) -> &Nodes {
        self.nodes
    }
}

impl DerefMut for Trial<'_> {
    fn deref_mut(&mut self) -> &mut Nodes {
        self.nodes
    }
}
