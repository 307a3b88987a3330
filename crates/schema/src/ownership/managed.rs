//! `metadata.managedFields`: reading, writing, and the rules about entries as such.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, json};

use super::set::Set;
use crate::Value;

/// Update entries beyond this are merged, oldest first.
const MAX_UPDATE_MANAGERS: usize = 10;
const MERGED_MANAGER: &str = "ancient-changes";

/// How a manager came by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

/// One entry of managedFields.
#[derive(Clone, Debug)]
pub struct Manager<'a> {
    pub name: Cow<'a, str>,
    pub operation: Operation,
    pub api_version: Cow<'a, str>,
    pub subresource: Cow<'a, str>,
    pub time: Option<Cow<'a, str>>,
    pub fields: Set<'a>,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

impl<'a> Manager<'a> {
    /// An applier keeps its entry when it changes the version it writes; an updater gets one for each.
    pub fn is_same(&self, other: &Manager<'_>) -> bool {
        self.identity() == other.identity()
    }

    /// Who applies does so in whatever version.
    fn identity(&self) -> (Operation, &str, &str, &str) {
        let version = match self.operation {
            Operation::Apply => "",
            Operation::Update => &*self.api_version,
        };
        (self.operation, &self.name, &self.subresource, version)
    }

    /// As conflicts name it.
    pub fn shown(&self) -> String {
        let mut text = crate::go::quote(&self.name);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {}", crate::go::quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            text += &format!(" using {}", self.api_version);
        }
        text
    }

    fn read(entry: &'a Value) -> Option<Manager<'a>> {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let is_readable = text("fieldsType") == "FieldsV1" && !text("apiVersion").is_empty();
        is_readable.then_some(())?;
        Some(Manager {
            name: text("manager").into(),
            operation,
            api_version: text("apiVersion").into(),
            subresource: text("subresource").into(),
            time: entry["time"].as_str().map(Cow::Borrowed),
            fields: Set::read(&entry["fieldsV1"]).ok()?,
        })
    }

    fn write(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("manager".to_owned(), (*self.name).into());
        entry.insert("operation".to_owned(), self.operation.as_str().into());
        entry.insert("apiVersion".to_owned(), (*self.api_version).into());
        if let Some(time) = &self.time {
            entry.insert("time".to_owned(), (**time).into());
        }
        entry.insert("fieldsType".to_owned(), "FieldsV1".into());
        entry.insert("fieldsV1".to_owned(), self.fields.write());
        if !self.subresource.is_empty() {
            entry.insert("subresource".to_owned(), (*self.subresource).into());
        }
        Value::Object(entry)
    }

    fn order(&self) -> impl Ord + '_ {
        (
            self.operation,
            &self.time,
            &self.name,
            &self.api_version,
            &self.subresource,
        )
    }
}

/// Reads all entries; `None` when one of them cannot be read.
pub fn read(entries: &Value) -> Option<Vec<Manager<'_>>> {
    let mut managers: Vec<Manager<'_>> = Vec::new();
    let mut places = HashMap::new();
    for entry in entries.as_array().into_iter().flatten() {
        let manager = Manager::read(entry)?;
        let (operation, name, subresource, version) = manager.identity();
        let identity = (operation, name.to_owned(), subresource.to_owned(), version.to_owned());
        let place = *places.entry(identity).or_insert(managers.len());
        match managers.get_mut(place) {
            Some(known) => *known = manager,
            None => managers.push(manager),
        }
    }
    Some(managers)
}

/// Writes all entries in upstream's order; nothing when there are none.
pub fn write(mut managers: Vec<Manager<'_>>) -> Option<Value> {
    managers.sort_by(|a, b| a.order().cmp(&b.order()));
    let entries: Vec<Value> = managers.iter().map(Manager::write).collect();
    (!entries.is_empty()).then_some(Value::Array(entries))
}

/// Whether a client asks to forget all managers: an empty list, or one empty entry.
pub fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only
            .values()
            .all(|value| value.is_null() || value == "" || value == &json!({})),
        _ => false,
    }
}

/// Merges the oldest update entries of each version until there are not too many.
pub fn merge_oldest(managers: &mut Vec<Manager<'_>>) {
    let mut updaters: Vec<Manager<'_>> = managers
        .extract_if(.., |manager| manager.operation == Operation::Update)
        .collect();
    let mut excess = updaters.len().saturating_sub(MAX_UPDATE_MANAGERS);
    updaters.sort_by(|a, b| a.order().cmp(&b.order()));
    // Of each version the oldest entry, which becomes the merged one when a second is found.
    let mut kept: Vec<(Manager<'_>, Vec<Set<'_>>)> = Vec::with_capacity(updaters.len());
    let mut places = HashMap::new();
    for manager in updaters {
        let place = *places.entry(manager.api_version.clone()).or_insert(kept.len());
        match kept.get_mut(place).filter(|_| excess > 0) {
            Some((oldest, more)) => {
                oldest.name = MERGED_MANAGER.into();
                oldest.subresource = "".into();
                oldest.time = manager.time;
                more.push(manager.fields);
                excess -= 1;
            }
            None => kept.push((manager, Vec::new())),
        }
    }
    managers.extend(kept.into_iter().map(|(mut manager, more)| {
        manager.fields = manager.fields.union(&union_of(&more));
        manager
    }));
}

/// All sets in one, joined in pairs, so that none is copied as often as there are sets.
fn union_of<'a>(sets: &[Set<'a>]) -> Set<'a> {
    match sets {
        [] => Set::default(),
        [one] => one.clone(),
        several => {
            let (first, second) = several.split_at(several.len() / 2);
            union_of(first).union(&union_of(second))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// As many as a body of 3 MiB can have: each is compared with those of its own name, not with all.
    #[test]
    fn very_many_managers_are_read_and_merged() {
        let entry = |at: usize| {
            json!({
                "manager": format!("m{at}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {format!("f:{at}"): {}},
            })
        };
        let entries: Value = (0..25_000).map(entry).collect();
        let begun = Instant::now();
        let mut managers = read(&entries).unwrap();
        assert_eq!(managers.len(), 25_000);
        merge_oldest(&mut managers);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(managers.len(), MAX_UPDATE_MANAGERS);
        let merged = managers.iter().find(|manager| manager.name == MERGED_MANAGER).unwrap();
        assert_eq!(merged.fields.0.len(), 25_000 - MAX_UPDATE_MANAGERS + 1);
    }
}
