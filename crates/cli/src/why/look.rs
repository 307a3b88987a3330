//! Reading fields of objects by their path, and what all objects have in common.

use api::Value;
use client::when::Moment;

static NOTHING: Value = Value::Null;

/// Fields by paths such as `status.phase`. What is absent or of another type reads as empty.
pub trait Look {
    fn at(&self, path: &str) -> &Value;

    fn str(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn int(&self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    fn yes(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or_default()
    }

    fn items(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    /// The entries of a map of texts.
    fn pairs(&self, path: &str) -> Vec<(&str, &str)> {
        let entries = self.at(path).as_object().into_iter().flatten();
        entries
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
            .collect()
    }

    fn texts(&self, path: &str) -> Vec<&str> {
        self.items(path).iter().filter_map(Value::as_str).collect()
    }

    fn name(&self) -> &str {
        self.str("metadata.name")
    }

    fn namespace(&self) -> &str {
        self.str("metadata.namespace")
    }

    fn uid(&self) -> &str {
        self.str("metadata.uid")
    }

    fn is_deleting(&self) -> bool {
        !self.str("metadata.deletionTimestamp").is_empty()
    }

    /// The condition of this type in the status.
    fn condition(&self, kind: &str) -> Option<&Value> {
        let conditions = self.items("status.conditions").iter();
        conditions.into_iter().find(|condition| condition.str("type") == kind)
    }

    /// The condition, if it has that status.
    fn condition_is(&self, kind: &str, status: &str) -> Option<&Value> {
        self.condition(kind)
            .filter(|condition| condition.str("status") == status)
    }

    fn moment(&self, path: &str) -> Option<Moment> {
        Moment::parse(self.str(path))
    }
}

impl Look for Value {
    fn at(&self, path: &str) -> &Value {
        let mut value = self;
        for field in path.split('.') {
            value = value.get(field).unwrap_or(&NOTHING);
        }
        value
    }
}

/// How long, as people say it: `45s`, `12m`, `3h`, `2d`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `1 pod`, `2 pods`.
pub fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// Labels as one writes them in a selector.
pub fn labels(pairs: &[(&str, &str)]) -> String {
    let written: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    written.join(",")
}

/// The text between two others.
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}
