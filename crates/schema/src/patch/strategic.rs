//! Strategic merge patch: a merge patch that knows from the schema which lists are merged, and by which key.
//!
//! A patch is an example of what the object should hold, with directives among its keys: `$patch: delete|replace` says
//! what to do with an object or a list's item, `$retainKeys` which keys an object keeps, `$setElementOrder/<list>` how
//! a merged list is ordered and `$deleteFromPrimitiveList/<list>` which scalars leave it.

use std::collections::{BTreeSet, HashSet};

use serde_json::Map;

use super::PatchError;
use super::list::{self, Merging};
use crate::view::{TypeRef, View};
use crate::{Value, go};

pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

type Result<T> = std::result::Result<T, PatchError>;

/// The object with the patch merged in. The result is not normalised.
pub fn strategic_merge_patch(ty: TypeRef<'_>, original: &Value, patch: &Value) -> Result<Value> {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err(PatchError::Malformed("invalid JSON document".to_owned()));
    };
    merge_object(Scope::Struct(ty), original.clone(), patch).map(Value::Object)
}

/// What the schema knows of an object's members.
#[derive(Clone, Copy)]
pub(super) enum Scope<'s> {
    Struct(TypeRef<'s>),
    /// A map whose values are all alike.
    Map(View<'s>),
    /// Nothing: the members are free.
    Open,
}

/// How a member of an object is merged.
struct Member<'s> {
    view: Option<View<'s>>,
    /// The member is replaced as a whole.
    replaces: bool,
    merges_list: bool,
    merge_key: Option<&'s str>,
}

impl<'s> Scope<'s> {
    pub(super) fn from_view(view: View<'s>) -> Self {
        match view {
            View::Struct(ty) | View::SchemaOr(_, ty) => Scope::Struct(ty),
            View::Map(element) => Scope::Map(element.view()),
            View::Leaf(_) | View::Raw(_) | View::List(_) => Scope::Open,
        }
    }

    fn member(self, key: &str) -> Result<Member<'s>> {
        let free = |view| Member {
            view,
            replaces: false,
            merges_list: false,
            merge_key: None,
        };
        match self {
            Scope::Open => Ok(free(None)),
            Scope::Map(view) => Ok(free(Some(view))),
            Scope::Struct(ty) => {
                let field = ty.field(key).ok_or_else(|| {
                    PatchError::Unexpected(format!(
                        "unable to find api field in struct {} for the json field {}",
                        ty.short_name(),
                        go::quote(key)
                    ))
                })?;
                Ok(Member {
                    view: Some(field.view()),
                    replaces: field.patch.replace,
                    merges_list: field.patch.merge,
                    merge_key: field.merge_key(),
                })
            }
        }
    }
}

impl<'s> Member<'s> {
    fn scope(&self) -> Scope<'s> {
        self.view.map_or(Scope::Open, Scope::from_view)
    }

    fn merging(&self) -> Result<Merging<'s>> {
        let items = match self.view {
            Some(View::List(element)) => Scope::from_view(element.view()),
            None | Some(View::Raw(_) | View::SchemaOr(..)) => Scope::Open,
            Some(_) => {
                return Err(PatchError::Unexpected(
                    "expected slice or array type, but got: struct".to_owned(),
                ));
            }
        };
        Ok(Merging {
            items,
            key: self.merge_key,
        })
    }
}

pub(super) fn merge_object(
    scope: Scope<'_>,
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>> {
    if let Some(directive) = patch.get(PATCH) {
        return follow_directive(directive, patch);
    }
    let mut patch = patch.clone();
    if let Some(retained) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut original, &patch, &retained)?;
    }
    let ordered: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for key in ordered {
        let order = patch.remove(&key).unwrap_or_default();
        set_element_order(scope, &mut original, &mut patch, &key, order)?;
    }
    for (key, value) in patch {
        if key.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
            let field = directed_field(&key, DELETE_FROM_PRIMITIVE_LIST)?;
            delete_from_list(scope, &mut original, field, value)?;
        } else {
            merge_member(scope, &mut original, key, value)?;
        }
    }
    Ok(original)
}

/// `$patch` on an object: replace it by the rest of the patch, or empty it.
fn follow_directive(directive: &Value, patch: &Map<String, Value>) -> Result<Map<String, Value>> {
    match directive.as_str() {
        Some("replace") => {
            let mut replacement = patch.clone();
            replacement.remove(PATCH);
            Ok(replacement)
        }
        Some("delete") => Ok(Map::new()),
        _ => Err(unknown_directive(directive, patch)),
    }
}

pub(super) fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    PatchError::Unexpected(format!(
        "unknown patch type: {} in map: {}",
        go::value_text(directive),
        go::map_text(patch)
    ))
}

/// `$retainKeys`: only the listed keys stay, and the patch may set no others.
fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>, retained: &Value) -> Result<()> {
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let retained = retained.as_array().ok_or_else(malformed)?;
    let retained: BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_directive = |key: &str| key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER);
    let covers = patch
        .iter()
        .all(|(key, value)| value.is_null() || is_directive(key) || retained.contains(key.as_str()));
    if !covers {
        return Err(malformed());
    }
    original.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// `$setElementOrder/<field>`: merges the field's list and puts it in the given order.
fn set_element_order(
    scope: Scope<'_>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    directive: &str,
    order: Value,
) -> Result<()> {
    let Value::Array(order) = order else {
        return Err(not_a_list(&order));
    };
    let field = directed_field(directive, SET_ELEMENT_ORDER)?;
    let live = as_list(original.get(field))?;
    let patched = as_list(patch.get(field))?;
    let member = scope.member(field)?;
    let merging = member.merging()?;
    merging.check_order(patched.unwrap_or_default(), &order)?;
    let merged = match (live, patched) {
        (None, None) => return Ok(()),
        (Some(live), None) => live.to_vec(),
        (None, Some(patched)) => without_directives(patched),
        (Some(live), Some(patched)) if member.merges_list => merging.merge(live.to_vec(), patched)?,
        (Some(_), Some(patched)) => patched.to_vec(),
    };
    let (live, patched) = (live.unwrap_or_default(), patched.unwrap_or_default());
    list::check_alike(&[live, patched])?;
    let live_order = merging.live_order(live, patched, member.merges_list);
    let merged = merging.arrange(merged, &order, &live_order)?;
    patch.remove(field);
    original.insert(field.to_owned(), Value::Array(merged));
    Ok(())
}

/// `$deleteFromPrimitiveList/<field>`: the listed scalars leave the list.
fn delete_from_list(scope: Scope<'_>, original: &mut Map<String, Value>, field: &str, value: Value) -> Result<()> {
    if value.is_null() {
        original.remove(field);
        return Ok(());
    }
    let (Some(Value::Array(items)), Value::Array(unwanted)) = (original.get_mut(field), value) else {
        return Ok(());
    };
    scope.member(field)?.merging()?;
    if items.is_empty() && unwanted.is_empty() {
        return Ok(());
    }
    list::check_alike(&[items, &unwanted])?;
    let unwanted: HashSet<&Value> = unwanted.iter().collect();
    items.retain(|item| !unwanted.contains(item));
    Ok(())
}

fn merge_member(scope: Scope<'_>, original: &mut Map<String, Value>, key: String, value: Value) -> Result<()> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let merged = match (original.remove(&key), value) {
        (Some(Value::Object(live)), Value::Object(patch)) => {
            let member = scope.member(&key)?;
            if member.replaces {
                Some(Value::Object(patch))
            } else {
                Some(Value::Object(merge_object(member.scope(), live, &patch)?))
            }
        }
        (Some(Value::Array(live)), Value::Array(patch)) => {
            let member = scope.member(&key)?;
            let merging = member.merging()?;
            if member.merges_list {
                Some(Value::Array(merging.merge(live, &patch)?))
            } else {
                Some(Value::Array(patch))
            }
        }
        (_, value) => without_directive(without_nulls(value)),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

fn directed_field<'a>(directive: &'a str, prefix: &str) -> Result<&'a str> {
    match directive.split_once('/') {
        Some((found, field)) if found == prefix => Ok(field),
        _ => Err(PatchError::Malformed(match prefix {
            SET_ELEMENT_ORDER => "invalid patch format of setElementOrder list".to_owned(),
            _ => "invalid patch format of primitive list".to_owned(),
        })),
    }
}

fn as_list(value: Option<&Value>) -> Result<Option<&[Value]>> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(not_a_list(other)),
    }
}

fn not_a_list(found: &Value) -> PatchError {
    PatchError::Unexpected(format!(
        "expected a []interface {{}}, but received a {}",
        go::type_text(found)
    ))
}

/// A new value is taken as it is, less its nulls and directives: there is nothing that they could delete.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// `None` for an object that is itself a directive.
fn without_directive(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let members = map
                .into_iter()
                .filter_map(|(key, value)| Some((key, without_directive(value)?)));
            Some(Value::Object(members.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directive).collect())),
        other => Some(other),
    }
}

fn without_directives(items: &[Value]) -> Vec<Value> {
    items.iter().cloned().filter_map(without_directive).collect()
}
