//! Work that pods alike share: which nodes they fit on and how good those are, kept until a node changes.
//!
//! A decision looks only at the nodes that changed since the last decision for a pod of its class, so scheduling ten
//! thousand equal pods on five thousand nodes compares each node once and then one node per pod.

use std::collections::HashMap;

use crate::framework::{Normalize, PreFilter, Rejection, Row};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{Class, Pod};

/// The classes that are remembered; the one unused for longest makes room.
const MAX_CLASSES: usize = 64;

#[derive(Default)]
pub struct Classes {
    known: HashMap<Class, Fits>,
    uses: u64,
}

/// How the nodes suit one class of pods.
pub struct Fits {
    /// The state of the table that this is about.
    seen: u64,
    used: u64,
    /// The plugins whose filter concerns the class.
    filters: Vec<&'static Row>,
    /// The plugins whose score concerns it and needs no comparison with other nodes.
    scores: Vec<&'static Row>,
    /// Why each node will not do; `None` where it will.
    pub rejections: Vec<Option<Box<Rejection>>>,
    /// The sum of the scores; below zero where the node will not do.
    pub score: Vec<i64>,
}

impl Classes {
    /// How the nodes suit the pod, brought up to date.
    pub fn fits(&mut self, rows: &'static [Row], pod: &Pod, nodes: &Nodes) -> &Fits {
        self.uses += 1;
        if self.known.len() >= MAX_CLASSES && !self.known.contains_key(&pod.class) {
            let oldest = self.known.iter().min_by_key(|(_, fits)| fits.used);
            if let Some(oldest) = oldest.map(|(class, _)| *class) {
                self.known.remove(&oldest);
            }
        }
        let fits = self
            .known
            .entry(pod.class)
            .or_insert_with(|| Fits::new(rows, pod, nodes));
        fits.used = self.uses;
        fits.refresh(pod, nodes);
        fits
    }
}

impl Fits {
    fn new(rows: &'static [Row], pod: &Pod, nodes: &Nodes) -> Fits {
        let scores = |row: &&Row| {
            row.weight > 0 && row.plugin.normalize() == Normalize::None && row.plugin.pre_score(pod, nodes)
        };
        Fits {
            seen: 0,
            used: 0,
            filters: filters(rows, pod, nodes),
            scores: rows.iter().filter(scores).collect(),
            rejections: Vec::new(),
            score: Vec::new(),
        }
    }

    fn refresh(&mut self, pod: &Pod, nodes: &Nodes) {
        self.rejections.resize_with(nodes.rows(), || None);
        self.score.resize(nodes.rows(), -1);
        if self.seen == nodes.generation() {
            return;
        }
        for node in 0..nodes.rows() {
            if nodes.changed[node] > self.seen {
                self.look_at(pod, nodes, node);
            }
        }
        self.seen = nodes.generation();
    }

    fn look_at(&mut self, pod: &Pod, nodes: &Nodes, node: NodeId) {
        self.rejections[node] = None;
        self.score[node] = -1;
        if !nodes.present[node] {
            return;
        }
        match filter(&self.filters, pod, nodes, node) {
            Ok(()) => {
                let scores = self.scores.iter();
                let weighted = scores.map(|row| row.weight * row.plugin.score(pod, nodes, node));
                self.score[node] = weighted.sum();
            }
            Err(rejection) => self.rejections[node] = Some(Box::new(rejection)),
        }
    }
}

/// Asks the filters in order; the first that does not want the node decides.
pub fn filter(rows: &[&'static Row], pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
    rows.iter().try_for_each(|row| row.plugin.filter(pod, nodes, node))
}

/// The plugins whose filter concerns the pod and depends on the node alone.
pub fn filters(rows: &'static [Row], pod: &Pod, nodes: &Nodes) -> Vec<&'static Row> {
    let concerns =
        |row: &&Row| row.filters && matches!(row.plugin.pre_filter(pod, nodes), PreFilter::Check | PreFilter::Only(_));
    rows.iter().filter(concerns).collect()
}
