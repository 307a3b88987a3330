//! `karve why`: why an object is not healthy, and what to do next.
//!
//! [`read`] gets what is needed from the public API as the user that the kubeconfig names; what that user may not see is
//! listed as missing. Everything else is pure over those [`Facts`]: a kind is one file in `kinds` and one row in `table`, a
//! reason is one function in its row. What no check recognises is reported as unknown.

mod facts;
mod fetch;
mod finding;
mod kinds;
mod look;
mod overview;
pub(crate) mod plain;
mod refusal;
mod render;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use api::Value;
use serde::Serialize;

pub use facts::{Facts, Unseen};
pub use fetch::{Scope, WhyError, read};
pub use finding::{Finding, Reference, Severity};
use look::Look;
use table::Kind;

/// How an object is, by its own status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The object does what it is for; the text says by which numbers.
    Healthy(String),
    /// The object does not do what it is for; the text says by which numbers.
    Unhealthy(String),
}

/// Why one object, or anything in the cluster, is not healthy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// None where the question was about everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Reference>,
    pub is_healthy: bool,
    /// How the target is, in one sentence.
    pub state: String,
    /// The most important first.
    pub findings: Vec<Finding>,
    /// Objects that are not healthy for an unknown reason, with their state.
    pub unknown: Vec<Unknown>,
    /// What could not be read, so that reasons may be missing.
    pub unseen: Vec<Unseen>,
}

#[derive(Debug, Serialize)]
pub struct Unknown {
    pub object: Reference,
    pub state: String,
}

/// Explains the target of `scope`, or everything in the cluster when it has none.
pub fn explain(facts: &Facts, scope: &Scope) -> Result<Answer, WhyError> {
    let Some((kind, name)) = &scope.target else {
        return Ok(overview::explain_all(facts));
    };
    let namespace = match kind.resource.namespaced {
        true => scope.namespace.as_str(),
        false => "",
    };
    let object = facts
        .find(kind.resource, namespace, name)
        .ok_or_else(|| not_found(facts, kind, namespace, name))?;
    let mut walk = Walk::new(facts);
    walk.visit(kind, object, true);
    let findings = overview::group(walk.findings);
    let target = Reference::of(kind.resource, object);
    let (is_healthy, state) = match (kind.state)(facts, object) {
        State::Healthy(state) => (true, state),
        State::Unhealthy(state) => (false, state),
    };
    let state = plain::line(&state, 700);
    let is_explained = findings.iter().any(|finding| finding.severity < Severity::Note);
    let unknown = (!is_healthy && !is_explained).then(|| Unknown {
        object: target.clone(),
        state: state.clone(),
    });
    Ok(Answer {
        target: Some(target),
        is_healthy,
        state,
        findings,
        unknown: unknown.into_iter().collect(),
        unseen: facts.unseen.clone(),
    })
}

/// Goes from an object to what it has made and to what it suffers from, each once.
struct Walk<'a> {
    facts: &'a Facts,
    visited: HashSet<Reference>,
    findings: Vec<Finding>,
}

impl<'a> Walk<'a> {
    fn new(facts: &'a Facts) -> Walk<'a> {
        Walk {
            facts,
            visited: HashSet::new(),
            findings: Vec::new(),
        }
    }

    /// Notes are only worth telling of the object that was asked about.
    fn visit(&mut self, kind: &'static Kind, object: &'a Value, with_notes: bool) {
        let reference = Reference::of(kind.resource, object);
        if !self.visited.insert(reference.clone()) {
            return;
        }
        let mut findings = checked(self.facts, kind, object);
        findings.retain(|finding| with_notes || finding.severity < Severity::Note);
        let roots: Vec<Reference> = findings.iter().filter_map(|finding| finding.root.clone()).collect();
        self.findings.extend(findings);
        for ((group, plural), owned) in self.facts.owned_by(object) {
            if let Some(kind) = table::served_as(group, plural) {
                self.visit(kind, owned, false);
            }
        }
        for root in roots {
            let Some(kind) = table::named(root.kind) else { continue };
            if let Some(object) = self.facts.find(kind.resource, &root.namespace, &root.name) {
                self.visit(kind, object, false);
            }
        }
    }
}

/// What the checks of its kind find of one object.
fn checked(facts: &Facts, kind: &'static Kind, object: &Value) -> Vec<Finding> {
    let reference = Reference::of(kind.resource, object);
    let family = facts::controller(object).unwrap_or(object.uid()).to_owned();
    let found = kind.checks.iter().flat_map(|check| check(facts, object));
    found
        .map(|finding| Finding {
            objects: vec![reference.clone()],
            family: family.clone(),
            ..finding.cleaned()
        })
        .collect()
}

fn not_found(facts: &Facts, kind: &Kind, namespace: &str, name: &str) -> WhyError {
    let names = facts.list_in(kind.resource, namespace).map(Look::name);
    let mut near: Vec<(usize, &str)> = names.map(|other| (distance(name, other), other)).collect();
    near.sort_unstable();
    let near = near.into_iter().filter(|(distance, _)| *distance <= 1 + name.len() / 3);
    WhyError::NotFound {
        object: format!("{}/{name}", kind.resource.singular),
        place: match namespace {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        },
        near: near.take(3).map(|(_, name)| plain::line(name, 253)).collect(),
    }
}

/// How many letters have to change to make one name of the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, char) in left.chars().take(64).enumerate() {
        let mut before = row[0];
        row[0] = index + 1;
        for column in 0..right.len() {
            let above = row[column + 1];
            let change = before + usize::from(right[column] != char);
            row[column + 1] = change.min(above + 1).min(row[column] + 1);
            before = above;
        }
    }
    row[right.len()]
}

pub use render::{render, render_json};
