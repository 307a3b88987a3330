//! Which fields a write through an endpoint can own: those it resets are nobody's.

use super::set::{Element, Set};

/// The fields that an endpoint lets through. Paths are field names; `*` stands for any item or key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// When given, nothing but these and what is below them.
    pub only: Option<&'static [&'static [&'static str]]>,
    /// Never these, nor what is below them.
    pub without: &'static [&'static [&'static str]],
}

impl Filter {
    pub fn keep<'a>(&self, set: &Set<'a>) -> Set<'a> {
        let kept = match self.only {
            Some(paths) => only(set, paths),
            None => set.clone(),
        };
        let without = |kept: Set<'a>, path: &&[&str]| kept.without_trees(&Set::of_path(path));
        self.without.iter().fold(kept, without)
    }
}

fn only<'a>(set: &Set<'a>, paths: &[&[&str]]) -> Set<'a> {
    let mut result = Set::default();
    for entry in &set.0 {
        let matches = |head: &str| head == "*" || matches!(&entry.element, Element::Field(name) if name == head);
        let rest: Vec<&[&str]> = paths
            .iter()
            .filter_map(|path| path.split_first())
            .filter(|(head, _)| matches(head))
            .map(|(_, rest)| rest)
            .collect();
        if rest.iter().any(|rest| rest.is_empty()) {
            result.push(entry.element.clone(), entry.member, entry.below.clone());
        } else if !rest.is_empty() {
            result.push(entry.element.clone(), false, only(&entry.below, &rest));
        }
    }
    result
}
