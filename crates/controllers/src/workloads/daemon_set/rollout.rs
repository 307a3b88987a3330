//! Replacing the pods of old templates, node by node: either the old pod goes first, or, with a surge, the new one
//! comes first.

use std::sync::Arc;

use super::model::Bounds;
use super::{MAX_CHANGES, Planner};
use crate::model::Pod;

/// The one pod of each kind on a node.
struct Pair {
    new: Option<Arc<Pod>>,
    old: Option<Arc<Pod>>,
}

impl Planner<'_> {
    pub fn roll(&mut self) {
        let desired = self.fits.iter().filter(|(_, fit)| fit.runs).count() as i64;
        let bounds = self.set.bounds(desired);
        if bounds.surge == 0 {
            self.delete_old(bounds);
        } else {
            self.surge(bounds);
        }
    }

    /// The pods on a node that are not on their way out; `None` while there are several of a kind, which is tidied up
    /// first.
    fn pair(&self, pods: &[Arc<Pod>]) -> Option<Pair> {
        let mut pair = Pair { new: None, old: None };
        for pod in pods.iter().filter(|pod| !pod.metadata.is_deleting()) {
            let place = if self.is_current(pod) {
                &mut pair.new
            } else {
                &mut pair.old
            };
            if place.replace(pod.clone()).is_some() {
                return None;
            }
        }
        Some(pair)
    }

    /// Old pods that are of no use go at once, the others as far as nodes may be without.
    fn delete_old(&mut self, bounds: Bounds) {
        let mut unavailable = 0;
        let (mut useless, mut useful) = (Vec::new(), Vec::new());
        for pods in self.pods.values() {
            match self.pair(pods) {
                Some(Pair {
                    new: None,
                    old: Some(old),
                }) if self.is_available(&old) => useful.push(old),
                Some(Pair {
                    new: None,
                    old: Some(old),
                }) => useless.push(old),
                Some(Pair {
                    new: Some(new),
                    old: None,
                }) if self.is_available(&new) => {}
                _ => unavailable += 1,
            }
        }
        // A pod that is of no use makes its node one of those that are without.
        let rest = (bounds.unavailable - unavailable - useless.len() as i64).max(0) as usize;
        let doomed = useless.into_iter().chain(useful.into_iter().take(rest));
        let doomed: Vec<Arc<Pod>> = doomed.take(MAX_CHANGES).collect();
        doomed.iter().for_each(|pod| self.delete(pod));
    }

    /// New pods are added beside old ones, first where the old one is of no use.
    fn surge(&mut self, bounds: Bounds) {
        let mut surging = 0;
        let (mut handed_over, mut useless, mut useful) = (Vec::new(), Vec::new(), Vec::new());
        for (node, fit) in &self.fits {
            let name = &node.metadata.name;
            let Some(pair) = self.pair(self.pods_on(name)) else {
                surging += 1;
                continue;
            };
            match pair {
                Pair {
                    new: Some(new),
                    old: Some(old),
                } if self.is_available(&new) => handed_over.push(old),
                Pair {
                    new: Some(_),
                    old: Some(_),
                } => surging += 1,
                Pair {
                    new: None,
                    old: Some(old),
                } if fit.runs => match self.is_available(&old) {
                    true => useful.push(name.clone()),
                    false => useless.push(name.clone()),
                },
                _ => {}
            }
        }
        let rest = (bounds.surge - surging).max(0) as usize;
        let nodes = useless.into_iter().chain(useful.into_iter().take(rest));
        let nodes: Vec<String> = nodes.take(MAX_CHANGES).collect();
        handed_over.iter().for_each(|pod| self.delete(pod));
        nodes.iter().for_each(|node| self.create_on(node));
    }
}
