//! Walks over objects guided by their ownership: which fields there are, what differs, what a merge gives.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Map;

use super::node::{Atom, Children, Items, Node};
use super::set::{Element, Set};
use crate::Value;

/// What changed between two objects.
#[derive(Clone, Debug, Default)]
pub struct Comparison<'a> {
    pub added: Set<'a>,
    pub modified: Set<'a>,
    pub removed: Set<'a>,
}

impl<'a> Comparison<'a> {
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The same without what `keep` drops.
    pub fn filtered(&self, keep: impl Fn(&Set<'a>) -> Set<'a>) -> Comparison<'a> {
        Comparison {
            added: keep(&self.added),
            modified: keep(&self.modified),
            removed: keep(&self.removed),
        }
    }
}

/// The fields of an object that somebody who wrote all of it owns.
pub fn fields_of<'a>(node: Node<'_>, value: &'a Value) -> Set<'a> {
    fields(node, value).1
}

fn fields<'a>(node: Node<'_>, value: &'a Value) -> (bool, Set<'a>) {
    match node.atom(value) {
        Atom::Scalar(_) | Atom::Whole(_) => (true, Set::default()),
        Atom::List(items) => {
            let mut set = Set::default();
            for (element, item) in sorted_items(items, Some(value)) {
                // Items given twice count once.
                if set.0.last().is_none_or(|last| last.element != element) {
                    set.push(element, true, fields(items.item, item).1);
                }
            }
            (false, set)
        }
        Atom::Map(children) => {
            let mut set = Set::default();
            for (key, value) in value.as_object().into_iter().flatten() {
                let (node, named) = children.stored(key);
                let (own, below) = fields(node, value);
                let own = own || !named || is_empty(Some(value));
                set.push(Element::field(key), own, below);
            }
            (false, set)
        }
    }
}

/// Compares two objects of one kind.
pub fn compare<'a>(node: Node<'_>, old: &'a Value, new: &'a Value) -> Comparison<'a> {
    let difference = difference(node, Some(old), Some(new));
    Comparison {
        added: difference.added.1,
        modified: difference.modified.1,
        removed: difference.removed.1,
    }
}

/// What changed at and below one place; each part says whether the place itself is in it.
#[derive(Default)]
struct Difference<'a> {
    added: (bool, Set<'a>),
    modified: (bool, Set<'a>),
    removed: (bool, Set<'a>),
}

impl<'a> Difference<'a> {
    /// The difference between two values that are owned whole.
    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Self {
        let mut leaf = Difference::default();
        match (old, new) {
            (None, Some(_)) => leaf.added.0 = true,
            (Some(_), None) => leaf.removed.0 = true,
            (old, new) => leaf.modified.0 = !equal(old, new),
        }
        leaf
    }

    fn push(&mut self, element: Element<'a>, child: Difference<'a>) {
        let Difference {
            added,
            modified,
            removed,
        } = child;
        if added.0 || !added.1.is_empty() {
            self.added.1.push(element.clone(), added.0, added.1);
        }
        if removed.0 || !removed.1.is_empty() {
            self.removed.1.push(element.clone(), removed.0, removed.1);
        }
        self.modified.1.push(element, modified.0, modified.1);
    }
}

fn equal(old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (Some(Value::Number(old)), Some(Value::Number(new))) => old == new || old.as_f64() == new.as_f64(),
        (old, new) => old == new,
    }
}

fn difference<'a>(node: Node<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Difference<'a> {
    // Null takes whatever form the other side has.
    let Some(guide) = [new, old].into_iter().flatten().min_by_key(|value| value.is_null()) else {
        return Difference::default();
    };
    let mut found = match node.atom(guide) {
        Atom::Scalar(_) | Atom::Whole(_) => return Difference::leaf(old, new),
        _ if is_empty(old) && is_empty(new) => return Difference::leaf(old, new),
        Atom::Map(children) => map_difference(children, old, new),
        Atom::List(items) => list_difference(items, old, new),
    };
    found.added.0 |= old.is_none();
    found.removed.0 |= new.is_none();
    found
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        None | Some(Value::Null) => true,
        Some(_) => false,
    }
}

fn map_difference<'a>(children: Children<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Difference<'a> {
    let entries = |value: Option<&'a Value>| value.and_then(Value::as_object).into_iter().flatten();
    let mut found = Difference::default();
    both(
        entries(old),
        entries(new),
        |a, b| a.0.cmp(b.0),
        |old, new| {
            let Some((key, _)) = old.or(new) else { return };
            let (node, _) = children.stored(key);
            found.push(
                Element::field(key),
                difference(node, old.map(|(_, value)| value), new.map(|(_, value)| value)),
            );
        },
    );
    found
}

fn list_difference<'a>(items: Items<'_>, old: Option<&'a Value>, new: Option<&'a Value>) -> Difference<'a> {
    if old == new {
        return Difference::default();
    }
    let (old, new) = (sorted_items(items, old), sorted_items(items, new));
    let runs = |list: &'_ [(Element<'a>, &'a Value)]| -> Vec<(Element<'a>, Vec<&'a Value>)> {
        let runs = list.chunk_by(|a, b| a.0 == b.0);
        runs.map(|run| (run[0].0.clone(), run.iter().map(|(_, value)| *value).collect()))
            .collect()
    };
    let mut found = Difference::default();
    both(
        runs(&old).into_iter(),
        runs(&new).into_iter(),
        |a, b| a.0.cmp(&b.0),
        |old, new| {
            let Some(element) = old.as_ref().or(new.as_ref()).map(|(element, _)| element.clone()) else {
                return;
            };
            let old = old.map(|(_, values)| values).unwrap_or_default();
            let new = new.map(|(_, values)| values).unwrap_or_default();
            found.push(element, run_difference(items.item, &old, &new));
        },
    );
    found
}

/// Items with the same key: one on each side is compared, several are only as a whole the same or not.
fn run_difference<'a>(node: Node<'_>, old: &[&'a Value], new: &[&'a Value]) -> Difference<'a> {
    match (old, new) {
        ([], [one]) => difference(node, None, Some(one)),
        ([one], []) => difference(node, Some(one), None),
        ([old], [new]) => difference(node, Some(old), Some(new)),
        (old, new) => {
            let mut whole = Difference::default();
            whole.added.0 = old.is_empty();
            whole.removed.0 = new.is_empty();
            whole.modified.0 = !old.is_empty() && !new.is_empty() && old != new;
            whole
        }
    }
}

/// The items of a list by their elements; those without any key cannot be told apart and are left out.
pub(super) fn sorted_items<'a>(items: Items<'_>, list: Option<&'a Value>) -> Vec<(Element<'a>, &'a Value)> {
    let list = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut found: Vec<_> = list
        .iter()
        .filter_map(|item| Some((items.element(item)?, item)))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Walks two sorted lists together.
fn both<T>(
    left: impl Iterator<Item = T>,
    right: impl Iterator<Item = T>,
    order: impl Fn(&T, &T) -> Ordering,
    mut visit: impl FnMut(Option<T>, Option<T>),
) {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    loop {
        let next = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(l), Some(r)) => order(l, r),
        };
        match next {
            Ordering::Less => visit(left.next(), None),
            Ordering::Greater => visit(None, right.next()),
            Ordering::Equal => visit(left.next(), right.next()),
        }
    }
}

/// The object with what was applied put into it.
pub fn merge(node: Node<'_>, live: &Value, applied: &Value) -> Value {
    merged(node, Some(live), Some(applied)).unwrap_or_default()
}

fn merged(node: Node<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let guide = [applied, live]
        .into_iter()
        .flatten()
        .min_by_key(|value| value.is_null())?;
    match node.atom(guide) {
        Atom::Scalar(_) | Atom::Whole(_) => applied.or(live).cloned(),
        _ if is_empty(live) && is_empty(applied) => applied.or(live).cloned(),
        Atom::Map(children) => {
            let entries = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
            let (live, applied) = (entries(live), entries(applied));
            let mut result = Map::new();
            for key in live.keys().chain(applied.keys().filter(|key| !live.contains_key(*key))) {
                let (node, _) = children.stored(key);
                if let Some(value) = merged(node, live.get(key), applied.get(key)) {
                    result.insert(key.clone(), value);
                }
            }
            Some(Value::Object(result))
        }
        Atom::List(items) => Some(Value::Array(merged_list(items, live, applied))),
    }
}

/// What is applied comes in its own order; what only the live list has stays where it was among its neighbours.
fn merged_list(items: Items<'_>, live: Option<&Value>, applied: Option<&Value>) -> Vec<Value> {
    fn list(value: Option<&Value>) -> &[Value] {
        value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    let elements = |list: &[Value]| -> Vec<Option<Element<'static>>> {
        list.iter().map(|item| items.element(item).map(owned)).collect()
    };
    let (live, applied) = (list(live), list(applied));
    let (live_elements, applied_elements) = (elements(live), elements(applied));
    let in_applied: BTreeSet<&Option<Element<'_>>> = applied_elements.iter().collect();
    let is_applied = |element: &Option<Element<'_>>| element.is_some() && in_applied.contains(element);
    // Where the live list has an element, and nothing if that is at several places.
    let mut in_live: BTreeMap<&Option<Element<'_>>, Option<usize>> = BTreeMap::new();
    for (at, element) in live_elements.iter().enumerate() {
        let places = in_live.entry(element);
        places.and_modify(|place| *place = None).or_insert(Some(at));
    }
    // The applied items that the live list has too, in the order in which they are to be met.
    let mut shared = applied_elements
        .iter()
        .filter(|element| in_live.contains_key(element))
        .peekable();

    let mut result = Vec::with_capacity(live.len().max(applied.len()));
    let (mut next_live, mut next_applied) = (0, 0);
    loop {
        let live_head = live_elements.get(next_live);
        match live_head {
            // Applied too, but at another place than here: it comes when its turn has come.
            Some(element) if is_applied(element) && shared.peek() != Some(&element) => next_live += 1,
            Some(element) if !is_applied(element) => {
                result.push(live[next_live].clone());
                next_live += 1;
            }
            _ => {
                let Some(element) = applied_elements.get(next_applied) else {
                    return result;
                };
                if shared.peek() == Some(&element) {
                    shared.next();
                }
                let only = in_live.get(element).copied().flatten();
                let counterpart = only.filter(|_| element.is_some()).map(|at| &live[at]);
                result.extend(merged(items.item, counterpart, Some(&applied[next_applied])));
                next_applied += 1;
            }
        }
    }
}

fn owned(element: Element<'_>) -> Element<'static> {
    match element {
        Element::Field(text) => Element::Field(text.into_owned().into()),
        Element::Key(text) => Element::Key(text.into_owned().into()),
        Element::Value(text) => Element::Value(text.into_owned().into()),
        Element::Index(at) => Element::Index(at),
    }
}

/// The object without the paths of a set and what is below them. What loses everything it held becomes null.
pub fn remove(node: Node<'_>, value: &Value, paths: &Set<'_>) -> Value {
    match (node.atom(value), value) {
        (Atom::Map(children), Value::Object(map)) => {
            let mut result = Map::new();
            for (key, value) in map {
                match paths.entry(&Element::field(key)) {
                    Some(entry) if entry.member => {}
                    Some(entry) => {
                        let (node, _) = children.stored(key);
                        result.insert(key.clone(), remove(node, value, &entry.below));
                    }
                    None => {
                        result.insert(key.clone(), value.clone());
                    }
                }
            }
            match result.is_empty() {
                true => Value::Null,
                false => Value::Object(result),
            }
        }
        (Atom::List(items), Value::Array(list)) => {
            let mut result = Vec::with_capacity(list.len());
            for item in list {
                match items.element(item).and_then(|element| paths.entry(&element)) {
                    Some(entry) if entry.member => {}
                    Some(entry) => result.push(remove(items.item, item, &entry.below)),
                    None => result.push(item.clone()),
                }
            }
            match result.is_empty() {
                true => Value::Null,
                false => Value::Array(result),
            }
        }
        (_, value) => value.clone(),
    }
}

/// The set with every named field on the way to its paths as a member too.
pub fn with_named_fields<'a>(node: Node<'_>, value: &Value, set: &Set<'a>) -> Set<'a> {
    let mut result = Set::default();
    let atom = node.atom(value);
    let mut by_element = BTreeMap::new();
    if let Atom::List(items) = &atom {
        for item in value.as_array().into_iter().flatten() {
            if let Some(element) = items.element(item) {
                by_element.entry(element).or_insert(item);
            }
        }
    }
    for entry in &set.0 {
        let (below, named) = match (&atom, &entry.element) {
            (Atom::Map(children), Element::Field(name)) => {
                let (node, named) = children.stored(name);
                let value = value.get(&**name).unwrap_or(&Value::Null);
                (with_named_fields(node, value, &entry.below), named)
            }
            (Atom::List(items), element) => {
                let item = by_element.get(element).copied().unwrap_or(&Value::Null);
                (with_named_fields(items.item, item, &entry.below), false)
            }
            _ => (entry.below.clone(), false),
        };
        let member = entry.member || (named && !entry.below.is_empty());
        result.push(entry.element.clone(), member, below);
    }
    result
}
