//! Pods near to, or away from, other pods.

use std::collections::{HashMap, HashSet};

use api::ObjectMeta;
use api::selector::Selector;
use async_trait::async_trait;

use crate::framework::{Change, Comparison, MAX_SCORE, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{Pod, PodAffinityTerm};

const NAME: &str = "InterPodAffinity";
/// How much a required term of a pod that is there counts for a pod that it wants near.
const REQUIRED_WEIGHT: i64 = 1;

pub struct InterPodAffinity;

/// A term that has been made ready for matching.
struct Term {
    topology_key: String,
    labels: Option<Selector>,
    namespaces: HashSet<String>,
    namespace_selector: Option<Selector>,
}

/// Which domains a pod must go to, and which it may not.
struct Rules {
    /// For each required term the domains in which it holds.
    near: Vec<(String, HashSet<String>)>,
    /// No pod matches the required terms yet but the pod itself does: it may be the first anywhere.
    is_first: bool,
    away: HashSet<(String, String)>,
    /// Domains in which a pod does not want this one.
    unwelcome: HashSet<(String, String)>,
}

#[async_trait]
impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Wherever a pod comes or goes, it may be one that matters.
    fn hint(&self, _pod: &Pod, change: &Change<'_>) -> bool {
        matches!(change, Change::Node(_) | Change::Company)
    }

    fn pre_filter(&self, pod: &Pod, nodes: &Nodes) -> PreFilter {
        let rules = Rules::new(pod, nodes);
        if rules.near.is_empty() && rules.away.is_empty() && rules.unwelcome.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Compare(Box::new(rules))
    }

    fn score_all(&self, pod: &Pod, nodes: &Nodes, feasible: &[NodeId]) -> Option<Vec<i64>> {
        let domains = preferences(pod, nodes);
        if domains.is_empty() {
            return None;
        }
        let raw = feasible.iter().map(|node| {
            let held = domains
                .iter()
                .filter(|((key, value), _)| nodes.domain(*node, key) == Some(value));
            held.map(|(_, weight)| weight).sum()
        });
        let raw: Vec<i64> = raw.collect();
        let (lowest, highest) = (raw.iter().min().copied()?, raw.iter().max().copied()?);
        let scaled = |score: &i64| match highest - lowest {
            0 => 0,
            range => (score - lowest) * MAX_SCORE / range,
        };
        Some(raw.iter().map(scaled).collect())
    }
}

impl Rules {
    fn new(pod: &Pod, nodes: &Nodes) -> Rules {
        let mut rules = Rules {
            near: Vec::new(),
            is_first: false,
            away: HashSet::new(),
            unwelcome: HashSet::new(),
        };
        for (node, other) in nodes.pods_with_placements() {
            let terms = other.placement.iter().flat_map(|wishes| &wishes.anti_affinity.required);
            for term in terms.map(|term| Term::new(term, other)) {
                if let Some(value) = nodes.domain(node, &term.topology_key)
                    && term.matches(&pod.metadata, nodes)
                {
                    rules.unwelcome.insert((term.topology_key.clone(), value.to_owned()));
                }
            }
        }
        if let Some(wishes) = &pod.placement {
            let terms =
                |terms: &[PodAffinityTerm]| -> Vec<Term> { terms.iter().map(|term| Term::new(term, pod)).collect() };
            rules.look_near(&terms(&wishes.affinity.required), pod, nodes);
            rules.look_away(&terms(&wishes.anti_affinity.required), nodes);
        }
        rules
    }

    /// A pod counts only if it matches all terms.
    fn look_near(&mut self, terms: &[Term], pod: &Pod, nodes: &Nodes) {
        if terms.is_empty() {
            return;
        }
        self.near = terms
            .iter()
            .map(|term| (term.topology_key.clone(), HashSet::new()))
            .collect();
        let matches_all = |metadata: &ObjectMeta| terms.iter().all(|term| term.matches(metadata, nodes));
        let mut found = false;
        for (node, _) in nodes.all_pods().filter(|(_, other)| matches_all(&other.metadata)) {
            found = true;
            for (key, domains) in &mut self.near {
                domains.extend(nodes.domain(node, key).map(str::to_owned));
            }
        }
        self.is_first = !found && matches_all(&pod.metadata);
    }

    fn look_away(&mut self, terms: &[Term], nodes: &Nodes) {
        if terms.is_empty() {
            return;
        }
        for (node, other) in nodes.all_pods() {
            for term in terms.iter().filter(|term| term.matches(&other.metadata, nodes)) {
                if let Some(value) = nodes.domain(node, &term.topology_key) {
                    self.away.insert((term.topology_key.clone(), value.to_owned()));
                }
            }
        }
    }

    fn is_in(&self, domains: &HashSet<(String, String)>, nodes: &Nodes, node: NodeId) -> bool {
        domains
            .iter()
            .any(|(key, value)| nodes.domain(node, key) == Some(value))
    }
}

impl Comparison for Rules {
    fn filter(&self, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let near = self.near.iter().all(|(key, domains)| match nodes.domain(node, key) {
            Some(value) => self.is_first || domains.contains(value),
            None => false,
        });
        if !near {
            let reason = "node(s) didn't match pod affinity rules";
            return Err(Rejection::unresolvable(NAME, reason));
        }
        if self.is_in(&self.away, nodes, node) {
            return Err(Rejection::new(NAME, "node(s) didn't match pod anti-affinity rules"));
        }
        if self.is_in(&self.unwelcome, nodes, node) {
            let reason = "node(s) didn't satisfy existing pods anti-affinity rules";
            return Err(Rejection::new(NAME, reason));
        }
        Ok(())
    }
}

/// How much each domain is preferred by the pod itself and by the pods that are there.
fn preferences(pod: &Pod, nodes: &Nodes) -> HashMap<(String, String), i64> {
    let mut domains: HashMap<(String, String), i64> = HashMap::new();
    let mut add = |term: &Term, node: NodeId, weight: i64| {
        if let Some(value) = nodes.domain(node, &term.topology_key) {
            *domains
                .entry((term.topology_key.clone(), value.to_owned()))
                .or_default() += weight;
        }
    };
    let wishes = preferred(pod);
    if !wishes.is_empty() {
        for (node, other) in nodes.all_pods() {
            let held = wishes.iter().filter(|(term, _)| term.matches(&other.metadata, nodes));
            held.for_each(|(term, weight)| add(term, node, *weight));
        }
    }
    for (node, other) in nodes.pods_with_placements() {
        let required = other.placement.iter().flat_map(|wishes| &wishes.affinity.required);
        let required = required.map(|term| (Term::new(term, other), REQUIRED_WEIGHT));
        for (term, weight) in preferred(other).into_iter().chain(required) {
            if term.matches(&pod.metadata, nodes) {
                add(&term, node, weight);
            }
        }
    }
    domains
}

/// The preferred terms of a pod; those to keep away weigh less than nothing.
fn preferred(pod: &Pod) -> Vec<(Term, i64)> {
    let Some(wishes) = &pod.placement else {
        return Vec::new();
    };
    let near = wishes.affinity.preferred.iter().map(|term| (term, term.weight));
    let away = wishes.anti_affinity.preferred.iter().map(|term| (term, -term.weight));
    near.chain(away)
        .map(|(term, weight)| (Term::new(&term.pod_affinity_term, pod), weight))
        .collect()
}

impl Term {
    fn new(term: &PodAffinityTerm, of: &Pod) -> Term {
        let mut namespaces: HashSet<String> = term.namespaces.iter().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(of.metadata.namespace.clone());
        }
        Term {
            topology_key: term.topology_key.clone(),
            labels: term.label_selector.as_ref().map(Selector::from),
            namespaces,
            namespace_selector: term.namespace_selector.as_ref().map(Selector::from),
        }
    }

    fn matches(&self, metadata: &ObjectMeta, nodes: &Nodes) -> bool {
        let by_selector = || {
            let labels = nodes.namespace_labels.get(&metadata.namespace);
            let selector = self.namespace_selector.as_ref();
            selector
                .zip(labels)
                .is_some_and(|(selector, labels)| selector.matches(labels))
        };
        let labels = self.labels.as_ref();
        labels.is_some_and(|labels| labels.matches(&metadata.labels))
            && (self.namespaces.contains(&metadata.namespace) || by_selector())
    }
}
