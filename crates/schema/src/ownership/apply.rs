//! Server-side apply: what one manager wants of an object is merged into it.

use serde_json::Map;

use super::check::{joined, problems_of};
use super::managed::{self, Manager, Operation};
use super::set::Set;
use super::track::{
    Contested, Step, Versions, Writer, own_fields, ownable, put_managed_fields, settle, take_managed_fields,
};
use super::walk::{compare, fields_of, merge, remove, with_named_fields};
use super::{Node, walk};
use crate::Value;

/// The manager that gets what was there when an object without managers is applied for the first time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The applier whose client-side past is honoured, and where that past is written down.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Upstream's bound for all annotations of an object together.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Why something could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// Others own what would change.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration does not fit the schema, or the object cannot be read.
    #[error("{0}")]
    Failed(String),
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager as messages name it.
    pub manager: String,
    pub path: String,
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager, one.path
        );
    }
    let mut lines: Vec<String> = Vec::new();
    for (at, conflict) in conflicts.iter().enumerate() {
        if at == 0 || conflicts[at - 1].manager != conflict.manager {
            lines.push(format!("conflicts with {}:", conflict.manager));
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// The object after `config` was applied to it, with its managers, not yet in normal form. `live` is the object before, in
/// the same version; `None` when there is none.
pub fn apply(
    kind: &dyn Versions,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    check_identity(config, writer)?;
    let Some(node) = kind.node(writer.api_version) else {
        return Err(ApplyError::Failed(format!("{} is not served", writer.api_version)));
    };
    let problems = problems_of(node, config);
    if !problems.is_empty() {
        let what = format!("failed to create typed patch object ({})", shown(config));
        return Err(ApplyError::Failed(format!("{what}: {}", joined(&problems))));
    }
    let mut bare = live.cloned().unwrap_or_else(|| node.empty());
    let entries = take_managed_fields(&mut bare);
    let Some(mut managers) = managed::read(&entries) else {
        return Err(ApplyError::Failed("failed to decode managed fields".to_owned()));
    };
    let empty = node.empty();
    if managers.is_empty() {
        let all = compare(node, &empty, &bare);
        let own = ownable(&writer.filter.keep(&all.modified.union(&all.added)));
        let before = Writer {
            manager: BEFORE_FIRST_APPLY,
            ..*writer
        };
        own_fields(&mut managers, own, &before);
    }
    Application {
        kind,
        node,
        live: &bare,
        config,
        writer,
    }
    .run(managers, force)
}

fn check_identity(config: &Value, writer: &Writer<'_>) -> Result<(), ApplyError> {
    let api_version = config["apiVersion"].as_str().unwrap_or_default();
    if api_version != writer.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {api_version}, expected: {}",
            writer.api_version
        )));
    }
    match config["metadata"].get("managedFields") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned())),
    }
}

/// `namespace/name; group/version, Kind=kind`, as failures name an object.
fn shown(object: &Value) -> String {
    let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let api_version = match text("apiVersion") {
        core if !core.contains('/') => format!("/{core}"),
        other => other.to_owned(),
    };
    format!(
        "{}/{}; {api_version}, Kind={}",
        metadata("namespace"),
        metadata("name"),
        text("kind")
    )
}

struct Application<'a> {
    kind: &'a dyn Versions,
    node: Node<'a>,
    /// The object before, without its managers.
    live: &'a Value,
    config: &'a Value,
    writer: &'a Writer<'a>,
}

impl<'a> Application<'a> {
    fn run(&self, managers: Vec<Manager<'a>>, force: bool) -> Result<Value, ApplyError> {
        match self.merged(managers.clone(), force) {
            Err(contested) if self.writer.manager == KUBECTL => {
                // What kubectl itself set before it applied on the server is not in its way.
                let allowed = self.allowed_by_last_applied();
                let remaining: Vec<Contested<'_>> = contested
                    .into_iter()
                    .map(|contested| Contested {
                        fields: contested.fields.difference(&Set::read(&allowed).unwrap_or_default()),
                        ..contested
                    })
                    .filter(|contested| !contested.fields.is_empty())
                    .collect();
                match remaining.is_empty() {
                    true => self.merged(managers, true).map_err(|contested| conflicts(&contested)),
                    false => Err(conflicts(&remaining)),
                }
            }
            merged => merged.map_err(|contested| conflicts(&contested)),
        }
    }

    fn merged(&self, mut managers: Vec<Manager<'a>>, force: bool) -> Result<Value, Vec<Contested<'a>>> {
        let merged = merge(self.node, self.live, self.config);
        let own = self.writer.filter.keep(&fields_of(self.node, self.config));
        let mut entry = self.writer.entry(Operation::Apply, own);
        let last = managers
            .iter()
            .position(|known| known.is_same(&entry))
            .map(|at| managers.remove(at));
        entry.time = last.as_ref().and_then(|last| last.time.clone());
        managers.push(entry);
        let at = managers.len() - 1;

        let pruned = last.and_then(|last| self.pruned(&merged, &managers, &last));
        let (mut new, unpruned) = match pruned {
            Some(pruned) => (pruned, Some(merged)),
            None => (merged, None),
        };
        let change = compare(self.node, self.live, &new).filtered(|set| self.writer.filter.keep(set));
        let step = Step {
            old: self.live,
            new: &new,
            api_version: self.writer.api_version,
            filter: self.writer.filter,
            change: &change,
        };
        // A change that only the server's own fields see still takes nothing from anybody.
        settle(self.kind, &step, &mut managers, Some(at), force)?;
        if let Some(own) = managers.last_mut().filter(|own| own.operation == Operation::Apply) {
            own.fields = ownable(&own.fields);
            if new != *self.live {
                own.time = self.writer.entry(Operation::Apply, Set::default()).time;
            }
        }
        managers.retain(|manager| !manager.fields.is_empty());
        let entries = managed::write(managers);
        if let Some(unpruned) = &unpruned {
            drop_emptied(&mut new, unpruned);
        }
        if self.writer.manager == KUBECTL {
            self.keep_last_applied(&mut new);
        }
        put_managed_fields(&mut new, entries);
        Ok(new)
    }

    /// Without what this manager applied before and neither it nor anybody else wants any more.
    fn pruned(&self, merged: &Value, managers: &[Manager<'a>], last: &Manager<'a>) -> Option<Value> {
        let version = &*last.api_version;
        let own = &managers.last()?.fields;
        if version == self.writer.api_version && last.fields.difference(own).is_empty() {
            return None;
        }
        let node = self.kind.node(version)?;
        let merged = self.kind.convert(merged, version)?;
        let named = |value: &Value, set: &Set<'a>| with_named_fields(node, value, set);
        let was_own = named(&merged, &last.fields);
        let mut kept = remove(node, &merged, &was_own);

        // What others want stays, judged in the version in which they want it; this version first.
        let mut versions: Vec<&str> = managers.iter().map(|manager| &*manager.api_version).collect();
        versions.sort_by_key(|other| (*other != version, *other));
        versions.dedup();
        for other in versions {
            kept = self.with_owned(&merged, &kept, managers, other).unwrap_or(kept);
        }

        let kept = self.kind.convert(&kept, version)?;
        let gone = named_fields(node, &merged)
            .difference(&named_fields(node, &kept))
            .intersection(&was_own);
        self.kind
            .convert(&remove(node, &merged, &gone), self.writer.api_version)
    }

    /// Puts back what managers of one version own.
    fn with_owned(&self, merged: &Value, kept: &Value, managers: &[Manager<'a>], version: &str) -> Option<Value> {
        let node = self.kind.node(version)?;
        let merged = self.kind.convert(merged, version)?;
        let kept = self.kind.convert(kept, version)?;
        let owned = managers
            .iter()
            .filter(|manager| manager.api_version == version)
            .fold(Set::default(), |set, manager| set.union(&manager.fields));
        let owned = with_named_fields(node, &merged, &owned);
        let gone = named_fields(node, &merged)
            .difference(&named_fields(node, &kept))
            .difference(&owned);
        Some(remove(node, &merged, &gone))
    }

    /// The fields that kubectl's annotation says it applied, as far as they still have the value that it applied.
    fn allowed_by_last_applied(&self) -> Value {
        let applied = self.live["metadata"]["annotations"][LAST_APPLIED].as_str();
        let Some(applied) = applied.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
            return Value::Null;
        };
        if applied["apiVersion"] != self.writer.api_version || !problems_of(self.node, &applied).is_empty() {
            return Value::Null;
        }
        let change = walk::compare(self.node, &applied, self.live);
        fields_of(self.node, &applied)
            .difference(&change.modified)
            .difference(&change.added)
            .difference(&change.removed)
            .write()
    }

    /// A client-side apply after this one must know what was applied, where there is a note of it at all.
    fn keep_last_applied(&self, new: &mut Value) {
        let Some(Value::Object(annotations)) = new.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"))
        else {
            return;
        };
        if !annotations.contains_key(LAST_APPLIED) {
            return;
        }
        let mut config = self.config.clone();
        if let Some(Value::Object(annotations)) =
            config.get_mut("metadata").and_then(|meta| meta.get_mut("annotations"))
        {
            annotations.remove(LAST_APPLIED);
        }
        annotations.insert(LAST_APPLIED.to_owned(), format!("{config}\n").into());
        if size(annotations) > MAX_ANNOTATIONS_BYTES {
            annotations.remove(LAST_APPLIED);
        }
    }
}

/// What lost everything it held is not there any more.
fn drop_emptied(pruned: &mut Value, merged: &Value) {
    let (Value::Object(pruned), Value::Object(merged)) = (pruned, merged) else {
        return;
    };
    pruned.retain(|key, value| !value.is_null() || merged.get(key).is_some_and(Value::is_null));
    for (key, value) in pruned {
        drop_emptied(value, merged.get(key).unwrap_or(&Value::Null));
    }
}

fn size(annotations: &Map<String, Value>) -> usize {
    let sizes = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    sizes.sum()
}

fn named_fields<'a>(node: Node<'_>, value: &'a Value) -> Set<'a> {
    with_named_fields(node, value, &fields_of(node, value))
}

fn conflicts(contested: &[Contested<'_>]) -> ApplyError {
    let of = |contested: &Contested<'_>| -> Vec<Conflict> {
        let conflict = |path| Conflict {
            manager: contested.manager.clone(),
            path,
        };
        contested.fields.paths().into_iter().map(conflict).collect()
    };
    ApplyError::Conflicts(contested.iter().flat_map(of).collect())
}
