//! What is wrong in a whole cluster: findings of alike objects as one, consequences below their root cause.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::finding::{Finding, Reference, Severity};
use super::{Answer, Facts, State, Unknown, Walk, checked, plain, table};

pub fn explain_all(facts: &Facts) -> Answer {
    let mut findings = Vec::new();
    let mut unknown = Vec::new();
    for ((group, plural), object) in facts.all() {
        let Some(kind) = table::served_as(group, plural) else {
            continue;
        };
        findings.extend(checked(facts, kind, object));
        if let State::Unhealthy(state) = (kind.state)(facts, object) {
            let mut walk = Walk::new(facts);
            walk.visit(kind, object, false);
            if walk.findings.is_empty() {
                unknown.push(Unknown {
                    object: Reference::of(kind.resource, object),
                    state: plain::line(&state, 700),
                });
            }
        }
    }
    findings.retain(|finding| finding.severity < Severity::Note);
    let findings = fold(group(findings));
    let is_healthy = findings.is_empty() && unknown.is_empty();
    let state = match is_healthy {
        true => "No problems found.".to_owned(),
        false => String::new(),
    };
    Answer {
        target: None,
        is_healthy,
        state,
        findings,
        unknown,
        unseen: facts.unseen.clone(),
    }
}

/// Joins what was found in the same words of objects that one owner has made; the most important first.
pub fn group(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups: Vec<Finding> = Vec::new();
    let mut places: HashMap<(&'static str, String, String), usize> = HashMap::new();
    for finding in findings {
        let key = (finding.cause, finding.family.clone(), finding.message.clone());
        match places.get(&key) {
            Some(index) => groups[*index].objects.extend(finding.objects),
            None => {
                places.insert(key, groups.len());
                groups.push(finding);
            }
        }
    }
    for finding in &mut groups {
        finding.objects.sort();
        finding.objects.dedup();
    }
    groups.sort_by_key(|finding| (finding.severity, finding.root.is_some()));
    groups
}

/// Puts consequences below the finding that they are consequences of.
fn fold(findings: Vec<Finding>) -> Vec<Finding> {
    let has_finding: BTreeSet<Reference> = findings
        .iter()
        .flat_map(|finding| finding.objects.iter().cloned())
        .collect();
    let is_consequence = |finding: &Finding| {
        let root = finding.root.as_ref();
        root.is_some_and(|root| has_finding.contains(root) && !finding.objects.contains(root))
    };
    let (consequences, mut causes): (Vec<Finding>, Vec<Finding>) = findings.into_iter().partition(is_consequence);
    let mut parents: BTreeMap<Reference, Reference> = BTreeMap::new();
    for finding in &consequences {
        for object in &finding.objects {
            if let Some(root) = &finding.root {
                parents.insert(object.clone(), root.clone());
            }
        }
    }
    let mut rest = Vec::new();
    for finding in consequences {
        let top = top_of(&parents, finding.root.as_ref());
        let cause = causes
            .iter_mut()
            .find(|cause| top.as_ref().is_some_and(|top| cause.objects.contains(top)));
        match cause {
            Some(cause) => cause.affects.extend(finding.objects),
            None => rest.push(finding),
        }
    }
    causes.extend(rest);
    for cause in &mut causes {
        cause.affects.sort();
        cause.affects.dedup();
    }
    causes.sort_by_key(|cause| {
        let reach = cause.affects.len() + cause.objects.len();
        (cause.severity, std::cmp::Reverse(reach))
    });
    causes
}

/// The end of the chain of causes; chains that lead back to themselves end anywhere.
fn top_of(parents: &BTreeMap<Reference, Reference>, root: Option<&Reference>) -> Option<Reference> {
    let mut top = root?;
    for _ in 0..8 {
        match parents.get(top) {
            Some(parent) => top = parent,
            None => break,
        }
    }
    Some(top.clone())
}
