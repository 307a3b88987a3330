//! Why a pod got no node, in upstream's words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::nodes::{NodeId, Nodes};
use crate::rejection::Rejection;

/// Why no node will do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Failure {
    pub nodes: usize,
    /// On how many nodes each reason holds.
    pub reasons: BTreeMap<String, usize>,
    /// Set when a plugin rejected the pod without looking at nodes.
    pub outright: Option<String>,
    /// The nodes on which removing other pods could help, and on how many it could not.
    pub resolvable: Vec<NodeId>,
    pub unresolvable: usize,
    pub plugins: BTreeSet<&'static str>,
    /// What plugins said when asked for a way out; empty when one was found.
    pub post_filter: Vec<String>,
}

impl Failure {
    pub fn new(nodes: &Nodes) -> Failure {
        Failure {
            nodes: nodes.len(),
            ..Failure::default()
        }
    }

    /// A plugin rejected the pod without looking at nodes.
    pub fn outright(nodes: &Nodes, rejection: &Rejection) -> Failure {
        let mut failure = Failure::new(nodes);
        failure.outright = Some(rejection.reasons.join(", "));
        failure.plugins.insert(rejection.plugin);
        failure.unresolvable = nodes.len();
        failure
    }

    /// A plugin turned the chosen node down after all.
    pub fn late(nodes: &Nodes, rejection: &Rejection) -> Failure {
        let mut failure = Failure::new(nodes);
        failure.count(rejection);
        failure
    }

    /// Adds what a plugin said of one node.
    pub fn count(&mut self, rejection: &Rejection) {
        for reason in &rejection.reasons {
            *self.reasons.entry(reason.to_string()).or_default() += 1;
        }
        self.plugins.insert(rejection.plugin);
    }
}

impl fmt::Display for Failure {
    /// In upstream's words, which people and tools know.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return formatter.write_str("no nodes available to schedule pods");
        }
        let mut reasons: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        reasons.sort();
        let text = self.outright.clone().unwrap_or_else(|| reasons.join(", "));
        write!(formatter, "0/{} nodes are available: {text}.", self.nodes)?;
        if self.post_filter.is_empty() {
            return Ok(());
        }
        write!(formatter, " {}", self.post_filter.join(", "))
    }
}
