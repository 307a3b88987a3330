//! Plain creates, updates and patches: who changed a field owns it from then on.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::managed::{self, Manager, Operation};
use super::set::Set;
use super::walk::{Comparison, compare};
use super::{Filter, NEVER_OWNED, Node};
use crate::Value;
use crate::time::{self, Instant};

/// A kind in the versions in which it is served.
pub trait Versions {
    /// The root of the kind's schema; `None` when the version is not served.
    fn node(&self, api_version: &str) -> Option<Node<'_>>;

    /// The object in another version; `None` when there is no such version.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// Who writes, through which endpoint, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: &'a str,
    pub filter: Filter,
    pub now: Instant,
}

/// Paths that never have an owner.
static UNOWNED: LazyLock<Set<'static>> = LazyLock::new(|| {
    NEVER_OWNED
        .iter()
        .fold(Set::default(), |set, path| set.union(&Set::of_path(path)))
});

/// Sets the `managedFields` of an object that is about to be written. `live` is the object before, in the same version;
/// `None` when it is new.
pub fn track(kind: &dyn Versions, live: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let claimed = take_managed_fields(new);
    let entries = live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]);
    let managers = current(&claimed, entries, writer);
    // An object whose managers were cleared is left alone until somebody applies it.
    if live.is_some() && managers.is_empty() {
        return;
    }
    let Some(node) = kind.node(writer.api_version) else {
        return;
    };
    let empty;
    let old = match live {
        Some(live) => live,
        None => {
            empty = node.empty();
            &empty
        }
    };
    let written = managers_after(kind, node, old, new, managers, writer);
    put_managed_fields(new, written);
}

fn managers_after<'a>(
    kind: &dyn Versions,
    node: Node<'_>,
    old: &'a Value,
    new: &'a Value,
    mut managers: Vec<Manager<'a>>,
    writer: &'a Writer<'a>,
) -> Option<Value> {
    let change = compare(node, old, new).filtered(|set| writer.filter.keep(set));
    if !change.is_same() {
        let step = Step {
            old,
            new,
            api_version: writer.api_version,
            filter: writer.filter,
            change: &change,
        };
        // With force there is nothing that could stand in the way.
        let _ = settle(kind, &step, &mut managers, None, true);
        own_fields(&mut managers, ownable(&change.modified.union(&change.added)), writer);
        managed::merge_oldest(&mut managers);
    }
    managed::write(managers)
}

/// Adds fields to the writer's entry.
pub(super) fn own_fields<'a>(managers: &mut Vec<Manager<'a>>, own: Set<'a>, writer: &Writer<'a>) {
    if own.is_empty() {
        return;
    }
    let entry = writer.entry(Operation::Update, own);
    match managers.iter_mut().find(|known| known.is_same(&entry)) {
        Some(known) => {
            known.fields = known.fields.union(&entry.fields);
            known.time = entry.time;
        }
        None => managers.push(entry),
    }
}

impl<'a> Writer<'a> {
    pub(super) fn entry(&self, operation: Operation, fields: Set<'a>) -> Manager<'a> {
        Manager {
            name: match self.manager {
                "" => "unknown".into(),
                name => name.into(),
            },
            operation,
            api_version: self.api_version.into(),
            subresource: self.subresource.into(),
            time: Some(Cow::Owned(time::format(self.now))),
            fields,
        }
    }
}

/// What is touched by a change and owned by somebody else.
pub(super) struct Contested<'a> {
    pub manager: String,
    pub fields: Set<'a>,
}

/// A change of an object: before, after, and how they differ as far as the endpoint lets it through.
pub(super) struct Step<'c> {
    pub old: &'c Value,
    pub new: &'c Value,
    pub api_version: &'c str,
    pub filter: Filter,
    pub change: &'c Comparison<'c>,
}

/// Takes what changed from the other managers. `writer` is the place of the one who writes, who keeps what it has.
/// Without `force` nothing is taken that somebody else has set.
pub(super) fn settle<'a>(
    kind: &dyn Versions,
    step: &Step<'_>,
    managers: &mut Vec<Manager<'a>>,
    writer: Option<usize>,
    force: bool,
) -> Result<(), Vec<Contested<'a>>> {
    if managers.is_empty() {
        return Ok(());
    }
    let touched = step.change.modified.union(&step.change.added);
    let mut contested = Vec::new();
    let mut left: Vec<Option<Set<'a>>> = Vec::with_capacity(managers.len());
    for (at, manager) in managers.iter().enumerate() {
        let split = match manager.api_version == step.api_version {
            _ if writer == Some(at) => Some((Set::default(), manager.fields.clone())),
            true => Some(split(&manager.fields, &touched, &step.change.removed)),
            false => split_in_other_version(kind, step, manager),
        };
        // A version that is not served any more takes its managers with it.
        let Some((taken, rest)) = split else {
            left.push(None);
            continue;
        };
        left.push(Some(rest));
        if !taken.is_empty() {
            contested.push(Contested {
                manager: manager.shown(),
                fields: taken,
            });
        }
    }
    if !force && !contested.is_empty() {
        contested.sort_by(|a, b| a.manager.cmp(&b.manager));
        return Err(contested);
    }
    let mut left = left.into_iter();
    managers.retain_mut(|manager| {
        manager.fields = left.next().flatten().unwrap_or_default();
        !manager.fields.is_empty()
    });
    Ok(())
}

/// What a manager loses to a change, and what it keeps.
fn split<'a>(fields: &Set<'a>, touched: &Set<'_>, removed: &Set<'_>) -> (Set<'a>, Set<'a>) {
    let taken = fields.intersection(touched);
    let rest = fields.difference(&taken).difference(removed);
    (taken, rest)
}

fn split_in_other_version<'a>(
    kind: &dyn Versions,
    step: &Step<'_>,
    manager: &Manager<'a>,
) -> Option<(Set<'a>, Set<'a>)> {
    let node = kind.node(&manager.api_version)?;
    let old = kind.convert(step.old, &manager.api_version)?;
    let new = kind.convert(step.new, &manager.api_version)?;
    let change = compare(node, &old, &new).filtered(|set| step.filter.keep(set));
    let touched = change.modified.union(&change.added);
    Some(split(&manager.fields, &touched, &change.removed))
}

/// The managers that count: those the client sent, unless it may not or did not.
fn current<'a>(claimed: &'a Value, live: &'a Value, writer: &Writer<'_>) -> Vec<Manager<'a>> {
    let of_live = || managed::read(live).unwrap_or_default();
    if !writer.subresource.is_empty() {
        return of_live();
    }
    if managed::is_reset(claimed) {
        return Vec::new();
    }
    match managed::read(claimed) {
        Some(managers) if !managers.is_empty() => managers,
        _ => of_live(),
    }
}

pub(super) fn take_managed_fields(object: &mut Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata
        .and_then(|metadata| metadata.remove("managedFields"))
        .unwrap_or_default()
}

pub(super) fn put_managed_fields(object: &mut Value, entries: Option<Value>) {
    if let (Some(entries), Some(Value::Object(metadata))) = (entries, object.get_mut("metadata")) {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

/// The paths of an object that can have an owner.
pub(super) fn ownable<'a>(set: &Set<'a>) -> Set<'a> {
    set.difference(&UNOWNED)
}
