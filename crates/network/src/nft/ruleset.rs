//! Packet rules as a value, and the difference between two of them: what keeps a table in step with a model.

use std::collections::BTreeMap;

use super::{Base, Batch, Element, Expression, Set, Table};

/// Some of a table's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    pub sets: BTreeMap<String, Set>,
    pub chains: BTreeMap<String, Chain>,
    /// By set and key. A set's elements may stand here without the set itself, which then exists already.
    pub elements: BTreeMap<String, BTreeMap<Vec<u8>, Element>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    pub base: Option<Base>,
    /// Unknown for a chain that was found in the kernel.
    pub rules: Option<Vec<Vec<Expression>>>,
}

impl Ruleset {
    pub fn add_set(&mut self, set: Set) {
        self.sets.insert(set.name.clone(), set);
    }

    pub fn add_chain(&mut self, name: impl Into<String>, base: Option<Base>, rules: Vec<Vec<Expression>>) {
        let rules = Some(rules);
        self.chains.insert(name.into(), Chain { base, rules });
    }

    pub fn add_element(&mut self, set: &str, element: Element) {
        let key = [&element.key[..], element.key_end.as_deref().unwrap_or_default()].concat();
        match self.elements.get_mut(set) {
            Some(elements) => elements.insert(key, element),
            None => self.elements.entry(set.to_owned()).or_default().insert(key, element),
        };
    }

    pub fn extend(&mut self, other: Ruleset) {
        self.sets.extend(other.sets);
        self.chains.extend(other.chains);
        for (set, elements) in other.elements {
            self.elements.entry(set).or_default().extend(elements);
        }
    }
}

/// The changes that lead from `old` to `new`, touching nothing that is the same in both.
///
/// The order is what the kernel's references allow: a thing is there before it is referred to, and goes after that.
pub fn changes(table: &Table, old: &Ruleset, new: &Ruleset) -> Batch {
    let mut batch = Batch::new();
    let added = |name: &&String| !old.chains.contains_key(*name);
    for set in new.sets.values().filter(|set| !old.sets.contains_key(&set.name)) {
        batch.add_set(table, set);
    }
    for name in new.chains.keys().filter(added) {
        batch.add_chain(table, name, new.chains[name].base);
    }
    change_elements(&mut batch, table, old, new);
    for (name, chain) in &new.chains {
        let before = old.chains.get(name);
        if before.is_some_and(|before| before.rules == chain.rules) {
            continue;
        }
        if before.is_some() {
            batch.flush_chain(table, name);
        }
        for rule in chain.rules.iter().flatten() {
            batch.add_rule(table, name, "", rule);
        }
    }
    let gone: Vec<&String> = old
        .chains
        .keys()
        .filter(|name| !new.chains.contains_key(*name))
        .collect();
    for name in &gone {
        batch.flush_chain(table, name);
    }
    for name in old.sets.keys().filter(|name| !new.sets.contains_key(*name)) {
        batch.remove_set(table, name);
    }
    for name in gone {
        batch.remove_chain(table, name);
    }
    batch
}

fn change_elements(batch: &mut Batch, table: &Table, old: &Ruleset, new: &Ruleset) {
    let none = BTreeMap::new();
    for (set, before) in &old.elements {
        let set_goes = old.sets.contains_key(set) && !new.sets.contains_key(set);
        let after = new.elements.get(set).unwrap_or(&none);
        let stale = before.iter().filter(|(key, element)| after.get(*key) != Some(element));
        if !set_goes {
            batch.remove_elements(table, set, stale.map(|(_, element)| element));
        }
    }
    for (set, after) in &new.elements {
        let before = old.elements.get(set).unwrap_or(&none);
        let fresh = after.iter().filter(|(key, element)| before.get(*key) != Some(element));
        batch.add_elements(table, set, fresh.map(|(_, element)| element));
    }
}
