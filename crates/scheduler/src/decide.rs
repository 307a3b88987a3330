//! The decision for one pod: the best of all nodes that will do, or why none will.

use std::collections::{BTreeMap, BTreeSet};

use crate::classes::{Classes, Fits};
use crate::dice::Dice;
use crate::failure::Failure;
use crate::framework::{Comparison, Normalize, PreFilter, Rejection, Row};
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

pub fn decide(
    rows: &'static [Row],
    pod: &Pod,
    nodes: &mut Nodes,
    classes: &mut Classes,
    dice: &mut Dice,
) -> Result<NodeId, Box<Failure>> {
    let limits = match limits(rows, pod, nodes) {
        Ok(limits) => limits,
        Err(rejection) => return Err(Box::new(Failure::outright(nodes, &rejection))),
    };
    let fits = classes.fits(rows, pod, nodes);
    let compared =
        |row: &&Row| row.weight > 0 && row.plugin.normalize() != Normalize::None && row.plugin.pre_score(pod, nodes);
    let compared: Vec<&Row> = rows.iter().filter(compared).collect();
    let nominated = nodes.nominations.concern(pod);
    let alone = pod.placement.is_none() && !nodes.have_placements() && !nominated;
    if compared.is_empty() && limits.is_empty() && alone {
        let best = best_of(&fits.score, dice);
        return best.ok_or_else(|| Box::new(failure_of(nodes, fits, &limits, &BTreeMap::new())));
    }
    let (mut scores, mut rejected) = limits.apply(nodes, fits);
    if nominated {
        make_way(rows, pod, nodes, &mut scores, &mut rejected);
        let own = nodes.nominations.node_of(pod.uid()).and_then(|name| nodes.id(name));
        if let Some(node) = own.filter(|node| scores[*node] >= 0) {
            return Ok(node);
        }
    }
    compare(&compared, pod, nodes, &mut scores);
    look_around(rows, pod, nodes, &mut scores);
    best_of(&scores, dice).ok_or_else(|| Box::new(failure_of(nodes, fits, &limits, &rejected)))
}

/// Whether the pod fits on the node as the table is, both with and without the pods that are nominated to the node
/// and come before it: those may never arrive, and others may want their company.
pub fn fits_on(rows: &'static [Row], pod: &Pod, nodes: &mut Nodes, node: NodeId) -> Result<(), Rejection> {
    let before = nodes.nominations.before(pod, &nodes.name[node]);
    if !before.is_empty() {
        let mut trial = nodes.trial(node);
        before.into_iter().for_each(|other| trial.add(other));
        check(rows, pod, &trial, node)?;
    }
    check(rows, pod, nodes, node)
}

/// Asks all plugins about one node.
fn check(rows: &'static [Row], pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
    let mut rows = rows.iter().filter(|row| row.filters);
    rows.try_for_each(|row| match row.plugin.pre_filter(pod, nodes) {
        PreFilter::Skip => Ok(()),
        PreFilter::Check => row.plugin.filter(pod, nodes, node),
        PreFilter::Compare(comparison) => comparison.filter(nodes, node),
        PreFilter::Only(these) if these.contains(&node) => row.plugin.filter(pod, nodes, node),
        PreFilter::Only(_) => Err(not_among(&[row.plugin.name()])),
        PreFilter::Reject(rejection) => Err(rejection),
    })
}

/// Leaves out nodes on which there is no room beside pods that are nominated there and come before this one.
fn make_way(
    rows: &'static [Row],
    pod: &Pod,
    nodes: &mut Nodes,
    scores: &mut [i64],
    rejected: &mut BTreeMap<NodeId, Rejection>,
) {
    let nominated: Vec<NodeId> = nodes.nominations.nodes().filter_map(|name| nodes.id(name)).collect();
    for node in nominated
        .into_iter()
        .filter(|node| scores[*node] >= 0)
        .collect::<Vec<_>>()
    {
        if let Err(rejection) = fits_on(rows, pod, nodes, node) {
            scores[node] = -1;
            rejected.insert(node, rejection);
        }
    }
}

fn not_among(plugins: &[&'static str]) -> Rejection {
    let names = plugins.join(" ");
    Rejection::unresolvable(plugins[0], format!("node(s) didn't satisfy plugin(s) [{names}]"))
}

/// What plugins said of a pod before they looked at single nodes.
#[derive(Default)]
struct Limits {
    only: Option<Only>,
    comparisons: Vec<Box<dyn Comparison>>,
}

/// The nodes that all plugins together leave over, where any plugin restricts them, and which plugins did.
struct Only {
    nodes: BTreeSet<NodeId>,
    plugins: Vec<&'static str>,
}

fn limits(rows: &'static [Row], pod: &Pod, nodes: &Nodes) -> Result<Limits, Rejection> {
    let mut limits = Limits::default();
    for row in rows.iter().filter(|row| row.filters) {
        match row.plugin.pre_filter(pod, nodes) {
            PreFilter::Skip | PreFilter::Check => {}
            PreFilter::Reject(rejection) => return Err(rejection),
            PreFilter::Compare(comparison) => limits.comparisons.push(comparison),
            PreFilter::Only(these) => {
                let these: BTreeSet<NodeId> = these.into_iter().collect();
                let known = limits.only.get_or_insert_with(|| Only {
                    nodes: these.clone(),
                    plugins: Vec::new(),
                });
                known.nodes.retain(|node| these.contains(node));
                known.plugins.push(row.plugin.name());
            }
        }
    }
    Ok(limits)
}

impl Limits {
    fn is_empty(&self) -> bool {
        self.only.is_none() && self.comparisons.is_empty()
    }

    /// The scores of the nodes that are left, and why the others are not.
    fn apply(&self, nodes: &Nodes, fits: &Fits) -> (Vec<i64>, BTreeMap<NodeId, Rejection>) {
        let mut scores = fits.score.clone();
        let mut rejected = BTreeMap::new();
        for (node, score) in scores.iter_mut().enumerate().filter(|(_, score)| **score >= 0) {
            if self.only.as_ref().is_some_and(|only| !only.nodes.contains(&node)) {
                *score = -1;
                continue;
            }
            let checked = self.comparisons.iter().try_for_each(|one| one.filter(nodes, node));
            if let Err(rejection) = checked {
                *score = -1;
                rejected.insert(node, rejection);
            }
        }
        (scores, rejected)
    }
}

/// Adds the scores of plugins that look at the pods of all nodes.
fn look_around(rows: &'static [Row], pod: &Pod, nodes: &Nodes, totals: &mut [i64]) {
    let feasible: Vec<NodeId> = (0..totals.len()).filter(|node| totals[*node] >= 0).collect();
    for row in rows.iter().filter(|row| row.weight > 0) {
        let scores = row.plugin.score_all(pod, nodes, &feasible).unwrap_or_default();
        for (node, score) in feasible.iter().zip(scores) {
            totals[*node] += row.weight * score;
        }
    }
}

/// Adds the scores that depend on how the nodes compare to each other.
fn compare(rows: &[&Row], pod: &Pod, nodes: &Nodes, totals: &mut [i64]) {
    for row in rows {
        let raw: Vec<i64> = (0..totals.len())
            .map(|node| match totals[node] {
                ..0 => 0,
                _ => row.plugin.score(pod, nodes, node),
            })
            .collect();
        let highest = raw.iter().copied().max().unwrap_or(0);
        for (total, raw) in totals.iter_mut().zip(raw).filter(|(total, _)| **total >= 0) {
            *total += row.weight * row.plugin.normalize().apply(raw, highest);
        }
    }
}

/// One of the nodes with the highest score, each with the same chance.
fn best_of(scores: &[i64], dice: &mut Dice) -> Option<NodeId> {
    let highest = scores.iter().copied().max().filter(|score| *score >= 0)?;
    let ties = scores.iter().filter(|score| **score == highest).count() as u64;
    let chosen = if ties > 1 { dice.roll(ties) } else { 0 };
    let mut best = scores.iter().enumerate().filter(|(_, score)| **score == highest);
    best.nth(chosen as usize).map(|(node, _)| node)
}

/// Counts why each of the nodes will not do.
fn failure_of(nodes: &Nodes, fits: &Fits, limits: &Limits, rejected: &BTreeMap<NodeId, Rejection>) -> Failure {
    let mut failure = Failure::new(nodes);
    for node in (0..nodes.rows()).filter(|node| nodes.present[*node]) {
        match &limits.only {
            Some(only) if !only.nodes.contains(&node) => {
                failure.count(&not_among(&only.plugins));
                failure.unresolvable += 1;
            }
            _ => {
                let rejection = fits.rejections[node].as_deref().or_else(|| rejected.get(&node));
                let Some(rejection) = rejection else { continue };
                failure.count(rejection);
                if rejection.unresolvable {
                    failure.unresolvable += 1;
                } else {
                    failure.resolvable.push(node);
                }
            }
        }
    }
    failure
}
