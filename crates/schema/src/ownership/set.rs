//! Sets of field paths: what a manager owns, and what a change touched.
//!
//! A set is a tree. Its entries are sorted, so that every operation is one walk over two sorted lists; names are
//! borrowed from the objects and the managedFields they were read from.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Map;

use crate::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element<'a> {
    /// `f:name`, a field of a struct or a key of a map.
    Field(Cow<'a, str>),
    /// `k:{"name":"x"}`, an item of a list by its keys; the text is JSON with sorted keys.
    Key(Cow<'a, str>),
    /// `v:"x"`, an item of a set; the text is JSON.
    Value(Cow<'a, str>),
    /// `i:0`, an item by its position; only ever read.
    Index(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub element: Element<'a>,
    /// Whether the path that ends here is in the set, not only paths through it.
    pub member: bool,
    pub below: Set<'a>,
}

/// Paths below one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set<'a>(pub(crate) Vec<Entry<'a>>);

/// FieldsV1 that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldsError(String);

impl<'a> Entry<'a> {
    fn is_needed(&self) -> bool {
        self.member || !self.below.is_empty()
    }
}

impl<'a> Set<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an entry that sorts behind all others; one that holds nothing is left out.
    pub(crate) fn push(&mut self, element: Element<'a>, member: bool, below: Set<'a>) {
        let entry = Entry { element, member, below };
        if entry.is_needed() {
            debug_assert!(self.0.last().is_none_or(|last| last.element < entry.element));
            self.0.push(entry);
        }
    }

    /// The set of one path of field names.
    pub fn of_path(names: &'a [&'a str]) -> Set<'a> {
        match names.split_first() {
            None => Set::default(),
            Some((name, rest)) => Set(vec![Entry {
                element: Element::Field(Cow::Borrowed(name)),
                member: rest.is_empty(),
                below: Set::of_path(rest),
            }]),
        }
    }

    pub(crate) fn entry(&self, element: &Element<'_>) -> Option<&Entry<'a>> {
        let at = self.0.binary_search_by(|entry| entry.element.cmp(element)).ok()?;
        Some(&self.0[at])
    }

    pub fn union(&self, other: &Set<'a>) -> Set<'a> {
        let mut result = Set(Vec::with_capacity(self.0.len().max(other.0.len())));
        pairs(&self.0, &other.0, |ours, theirs| match (ours, theirs) {
            (Some(one), None) | (None, Some(one)) => result.0.push(one.clone()),
            (Some(ours), Some(theirs)) => result.push(
                ours.element.clone(),
                ours.member || theirs.member,
                ours.below.union(&theirs.below),
            ),
            (None, None) => {}
        });
        result
    }

    pub fn intersection(&self, other: &Set<'_>) -> Set<'a> {
        let mut result = Set::default();
        pairs(&self.0, &other.0, |ours, theirs| {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                let below = ours.below.intersection(&theirs.below);
                result.push(ours.element.clone(), ours.member && theirs.member, below);
            }
        });
        result
    }

    /// The paths of this set that are not in the other.
    pub fn difference(&self, other: &Set<'_>) -> Set<'a> {
        let mut result = Set::default();
        pairs(&self.0, &other.0, |ours, theirs| match (ours, theirs) {
            (Some(ours), None) => result.0.push(ours.clone()),
            (Some(ours), Some(theirs)) => {
                let below = ours.below.difference(&theirs.below);
                result.push(ours.element.clone(), ours.member && !theirs.member, below);
            }
            (None, _) => {}
        });
        result
    }

    /// The paths of this set that neither are in the other nor lead through a member of it.
    pub fn without_trees(&self, other: &Set<'_>) -> Set<'a> {
        let mut result = Set::default();
        pairs(&self.0, &other.0, |ours, theirs| match (ours, theirs) {
            (Some(ours), None) => result.0.push(ours.clone()),
            (Some(ours), Some(theirs)) if !theirs.member => {
                let below = ours.below.without_trees(&theirs.below);
                result.push(ours.element.clone(), ours.member, below);
            }
            _ => {}
        });
        result
    }

    /// Every path of the set, a parent before what is below it and fields in the order upstream lists them.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.list_paths("", &mut paths);
        paths
    }

    fn list_paths(&self, prefix: &str, paths: &mut Vec<String>) {
        let mut entries: Vec<&Entry<'_>> = self.0.iter().collect();
        entries.sort_by(|a, b| listed_order(&a.element, &b.element));
        for entry in entries.iter().filter(|entry| entry.member) {
            paths.push(format!("{prefix}{}", entry.element.shown()));
        }
        for entry in entries {
            entry
                .below
                .list_paths(&format!("{prefix}{}", entry.element.shown()), paths);
        }
    }

    /// Reads `fieldsV1`.
    pub fn read(fields: &'a Value) -> Result<Set<'a>, FieldsError> {
        match fields {
            Value::Null => Ok(Set::default()),
            Value::Object(map) => Set::read_map(map).map(|(_, set)| set),
            _ => Err(FieldsError("fieldsV1 must be an object".to_owned())),
        }
    }

    /// Whether the map holds `.`, and what is below it.
    fn read_map(map: &'a Map<String, Value>) -> Result<(bool, Set<'a>), FieldsError> {
        let (mut own, mut entries) = (false, Vec::with_capacity(map.len()));
        for (text, below) in map {
            if text == "." {
                own = true;
                continue;
            }
            let Some(element) = Element::read(text)? else { continue };
            let Value::Object(below) = below else {
                return Err(FieldsError(format!("{text:?} must hold an object")));
            };
            let (member, set) = Set::read_map(below)?;
            entries.push(Entry {
                element,
                member: member || below.is_empty(),
                below: set,
            });
        }
        if !entries.is_sorted_by(|a, b| a.element < b.element) {
            entries.sort_by(|a, b| a.element.cmp(&b.element));
            entries.dedup_by(|later, earlier| later.element == earlier.element);
        }
        Ok((own, Set(entries)))
    }

    /// The set as `fieldsV1`.
    pub fn write(&self) -> Value {
        Value::Object(self.write_map(false))
    }

    fn write_map(&self, own: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if own && !self.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for entry in &self.0 {
            map.insert(
                entry.element.written(),
                Value::Object(entry.below.write_map(entry.member)),
            );
        }
        map
    }
}

impl<'a> Element<'a> {
    pub(crate) fn field(name: &'a str) -> Element<'a> {
        Element::Field(Cow::Borrowed(name))
    }

    /// Steps of a kind that is not known are skipped, as upstream skips those of later versions.
    fn read(text: &'a str) -> Result<Option<Element<'a>>, FieldsError> {
        let bad = |why: String| FieldsError(format!("{text:?} is not a path element: {why}"));
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(bad("it has no type".to_owned()));
        };
        Ok(Some(match kind {
            "f" => Element::Field(Cow::Borrowed(rest)),
            "k" => Element::Key(canonical(rest).map_err(bad)?),
            "v" => Element::Value(canonical(rest).map_err(bad)?),
            "i" => Element::Index(rest.parse().map_err(|_| bad("not a number".to_owned()))?),
            _ => return Ok(None),
        }))
    }

    fn written(&self) -> String {
        match self {
            Element::Field(name) => ["f:", name].concat(),
            Element::Key(text) => ["k:", text].concat(),
            Element::Value(text) => ["v:", text].concat(),
            Element::Index(at) => format!("i:{at}"),
        }
    }

    /// As upstream's messages show it.
    pub(crate) fn shown(&self) -> String {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        match self {
            Element::Field(name) => format!(".{name}"),
            Element::Key(text) => {
                let keys = parse(text);
                let keys = keys.as_object().into_iter().flatten();
                let shown: Vec<String> = keys
                    .map(|(name, value)| format!("{name}={}", show_value(value)))
                    .collect();
                format!("[{}]", shown.join(","))
            }
            Element::Value(text) => format!("[={}]", show_value(&parse(text))),
            Element::Index(at) => format!("[{at}]"),
        }
    }
}

fn show_value(value: &Value) -> String {
    match value {
        Value::String(text) => crate::go::quote(text),
        other => other.to_string(),
    }
}

/// The one text for a JSON value: ours has no escapes but the necessary ones, so what has none is left as it is.
fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match text.contains(['\\', ' ']) {
        false => Ok(Cow::Borrowed(text)),
        true => Ok(Cow::Owned(value.to_string())),
    }
}

/// Text order differs from upstream's only in keys and values, whose numbers it compares as numbers.
fn listed_order(a: &Element<'_>, b: &Element<'_>) -> Ordering {
    match (a, b) {
        (Element::Key(a), Element::Key(b)) | (Element::Value(a), Element::Value(b)) => {
            let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            value_order(&parse(a), &parse(b))
        }
        (a, b) => a.cmp(b),
    }
}

fn value_order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
        (Value::Object(a), Value::Object(b)) => {
            let fields = a
                .iter()
                .zip(b)
                .map(|((a, av), (b, bv))| a.cmp(b).then_with(|| value_order(av, bv)));
            fields
                .fold(Ordering::Equal, Ordering::then)
                .then_with(|| a.len().cmp(&b.len()))
        }
        (a, b) => a.to_string().cmp(&b.to_string()),
    }
}

/// Walks two sorted lists of entries together.
fn pairs<'l, 'r, 'a, 'b>(
    left: &'l [Entry<'a>],
    right: &'r [Entry<'b>],
    mut visit: impl FnMut(Option<&'l Entry<'a>>, Option<&'r Entry<'b>>),
) {
    let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let order = match (l.peek(), r.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.element.cmp(&right.element),
        };
        match order {
            Ordering::Less => visit(l.next(), None),
            Ordering::Greater => visit(None, r.next()),
            Ordering::Equal => visit(l.next(), r.next()),
        }
    }
}
