//! Merging lists: items are matched by their merge key, scalars by themselves.

use std::collections::{HashMap, HashSet};

use serde_json::Map;

use super::PatchError;
use super::strategic::{PATCH, Scope, merge_object, unknown_directive};
use crate::{Value, go};

type Result<T> = std::result::Result<T, PatchError>;

/// How the items of one list are merged.
#[derive(Clone, Copy)]
pub(super) struct Merging<'s> {
    pub items: Scope<'s>,
    /// Items are objects and known by this key; without one they are scalars.
    pub key: Option<&'s str>,
}

impl Merging<'_> {
    /// The live list with the patch's items merged in.
    pub fn merge(self, live: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>> {
        if live.is_empty() && patch.is_empty() {
            return Ok(live);
        }
        if !check_alike(&[&live, patch])? {
            let mut seen = HashSet::new();
            let all = live.iter().chain(patch);
            let merged = all.filter(|item| seen.insert(*item)).cloned().collect();
            return self.arrange(merged, patch, &live);
        }
        let Some(key) = self.key else {
            return Err(PatchError::Unexpected(
                "cannot merge lists without merge key for struct".to_owned(),
            ));
        };
        let (live, patch) = self.follow_directives(key, live, patch)?;
        let merged = self.merge_items(key, live.clone(), &patch)?;
        self.arrange(merged, &patch, &live)
    }

    /// Deletes the items that the patch marks so and takes the marks out of the patch. `$patch: replace` in any item
    /// makes the patch the whole list.
    fn follow_directives(self, key: &str, mut live: Vec<Value>, patch: &[Value]) -> Result<(Vec<Value>, Vec<Value>)> {
        let mut plain = Vec::new();
        let mut deleted = HashSet::new();
        let mut replaces = false;
        for item in patch {
            let map = object(item)?;
            match map.get(PATCH).map(|directive| (directive.as_str(), directive)) {
                None => plain.push(item.clone()),
                Some((Some("delete"), _)) => {
                    deleted.insert(key_of(map, key)?);
                }
                Some((Some("replace"), _)) => replaces = true,
                Some((Some("merge"), _)) => {
                    let message = "merging lists cannot yet be specified in the patch";
                    return Err(PatchError::Unexpected(message.to_owned()));
                }
                Some((_, directive)) => return Err(unknown_directive(directive, map)),
            }
        }
        live.retain(|item| item.get(key).is_none_or(|identity| !deleted.contains(identity)));
        Ok(if replaces { (plain, Vec::new()) } else { (live, plain) })
    }

    fn merge_items(self, key: &str, mut live: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>> {
        let mut positions: HashMap<Value, usize> = HashMap::new();
        for (position, item) in live.iter().enumerate() {
            if let Some(identity) = object(item)?.get(key) {
                positions.entry(identity.clone()).or_insert(position);
            }
        }
        for item in patch {
            let map = object(item)?;
            let identity = key_of(map, key)?;
            match positions.get(identity) {
                Some(&position) => {
                    if let Value::Object(original) = live[position].take() {
                        live[position] = Value::Object(merge_object(self.items, original, map)?);
                    }
                }
                None => {
                    positions.insert(identity.clone(), live.len());
                    live.push(item.clone());
                }
            }
        }
        Ok(live)
    }

    /// Orders a merged list. Items that `wanted` names follow its order, the others the live list's. Where the live
    /// list has one of the others before a named one, it stays before it; else it comes after.
    pub fn arrange(self, merged: Vec<Value>, wanted: &[Value], live: &[Value]) -> Result<Vec<Value>> {
        let wanted = self.positions(wanted)?;
        let live = self.positions(live)?;
        let mut named = Vec::new();
        let mut others = Vec::new();
        for item in merged {
            let identity = self.identity(&item)?;
            match wanted.get(identity) {
                Some(&position) => named.push((position, live.get(identity).copied(), item)),
                None => others.push((live.get(identity).copied(), item)),
            }
        }
        named.sort_by_key(|(position, ..)| *position);
        others.sort_by_key(|(position, _)| *position);
        let mut arranged = Vec::with_capacity(named.len() + others.len());
        let mut others = others.into_iter().peekable();
        for (_, named_at, item) in named {
            while let Some((_, other)) = others
                .next_if(|(other_at, _)| matches!((other_at, named_at), (Some(other), Some(named)) if *other < named))
            {
                arranged.push(other);
            }
            arranged.push(item);
        }
        arranged.extend(others.map(|(_, item)| item));
        Ok(arranged)
    }

    /// What counts as the live list when `$setElementOrder` asks for its order. Items that the patch deletes are gone,
    /// and as many of its new items stand at the end in their places: upstream orders a renamed container so.
    pub fn live_order(self, live: &[Value], patch: &[Value], merges: bool) -> Vec<Value> {
        let Some(key) = self.key.filter(|_| merges) else {
            return live.to_vec();
        };
        let is_marked = |item: &Value, mark: &str| item.get(PATCH).and_then(Value::as_str) == Some(mark);
        let deletions = patch.iter().filter(|item| is_marked(item, "delete"));
        let deleted: HashSet<_> = deletions.map(|item| item.get(key)).collect();
        let mut order: Vec<Value> = live
            .iter()
            .filter(|item| !deleted.contains(&item.get(key)))
            .cloned()
            .collect();
        if !patch.iter().any(|item| is_marked(item, "replace")) {
            let known: HashSet<_> = order.iter().map(|item| item.get(key)).collect();
            let is_new = |item: &&Value| item.get(PATCH).is_none() && !known.contains(&item.get(key));
            let new: Vec<Value> = patch
                .iter()
                .filter(is_new)
                .take(live.len() - order.len())
                .cloned()
                .collect();
            order.extend(new);
        }
        order
    }

    /// The patch's items must appear in `order`, in the same sequence; deletions aside.
    pub fn check_order(self, patch: &[Value], order: &[Value]) -> Result<()> {
        if patch.is_empty() || order.is_empty() {
            return Ok(());
        }
        let mut remaining = order.iter();
        for item in patch {
            let directive = if self.key.is_some() {
                object(item)?.get(PATCH)
            } else {
                None
            };
            if let Some(directive) = directive {
                if directive == "delete" || remaining.len() > 0 {
                    continue;
                }
                return Err(order_mismatch(patch, order));
            }
            let identity = self.identity(item)?;
            let mut found = false;
            for candidate in remaining.by_ref() {
                if self.identity(candidate)? == identity {
                    found = true;
                    break;
                }
            }
            if !found {
                return Err(order_mismatch(patch, order));
            }
        }
        Ok(())
    }

    fn positions(self, items: &[Value]) -> Result<HashMap<&Value, usize>> {
        let mut positions = HashMap::new();
        for (position, item) in items.iter().enumerate() {
            positions.entry(self.identity(item)?).or_insert(position);
        }
        Ok(positions)
    }

    fn identity(self, item: &Value) -> Result<&Value> {
        match self.key {
            None => Ok(item),
            Some(key) => key_of(object(item)?, key),
        }
    }
}

/// Whether the items are objects. All items of all lists must be of one type, which is not a list.
pub(super) fn check_alike(lists: &[&[Value]]) -> Result<bool> {
    let mut items = lists.iter().flat_map(|list| list.iter());
    let Some(first) = items.next() else {
        return Err(PatchError::Unexpected(
            "no elements in any of the given slices".to_owned(),
        ));
    };
    if first.is_array() {
        return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
    }
    if items.any(|item| std::mem::discriminant(item) != std::mem::discriminant(first)) {
        let lists: Vec<String> = lists.iter().map(|list| go::list_text(list)).collect();
        return Err(PatchError::Unexpected(format!(
            "list element types are not identical: [{}]",
            lists.join(" ")
        )));
    }
    Ok(first.is_object())
}

fn order_mismatch(patch: &[Value], order: &[Value]) -> PatchError {
    PatchError::Unexpected(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        go::list_text(patch),
        go::list_text(order)
    ))
}

fn object(item: &Value) -> Result<&Map<String, Value>> {
    item.as_object().ok_or_else(|| {
        PatchError::Unexpected(format!(
            "expected a map[string]interface {{}}, but received a {}",
            go::type_text(item)
        ))
    })
}

fn key_of<'a>(item: &'a Map<String, Value>, key: &str) -> Result<&'a Value> {
    item.get(key).ok_or_else(|| {
        PatchError::Unexpected(format!(
            "map: {} does not contain declared merge key: {key}",
            go::map_text(item)
        ))
    })
}
