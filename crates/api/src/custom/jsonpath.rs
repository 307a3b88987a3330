//! The paths that definitions use to point into objects: `.spec.replicas` for fields, and the fuller form with indexes,
//! wildcards and filters in printed columns.

use crate::Value;

/// A path of plain field names, as in `specReplicasPath` and `selectableFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimplePath(Vec<String>);

impl SimplePath {
    /// `None` when the text is more than field names.
    pub fn parse(text: &str) -> Option<SimplePath> {
        let rest = text.strip_prefix('.')?;
        let names: Vec<String> = rest.split('.').map(str::to_owned).collect();
        let plain = |name: &String| !name.is_empty() && !name.contains(['[', ']', '*', '?', '(', ')', '\'', '"']);
        names.iter().all(plain).then_some(SimplePath(names))
    }

    pub fn get<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(object, |value, name| value.get(name))
    }

    /// Sets the value, making the objects on the way to it.
    pub fn set(&self, object: &mut Value, new: Value) {
        let mut at = object;
        for name in &self.0 {
            if !at.is_object() {
                *at = Value::Object(Default::default());
            }
            at = &mut at[name];
        }
        *at = new;
    }

    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// `spec.replicas`, as field selectors name it.
    pub fn label(&self) -> String {
        self.0.join(".")
    }
}

/// A path as printed columns have it.
#[derive(Clone, Debug, PartialEq)]
pub struct FullPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Name(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    /// Everything below, at any depth, by name.
    Descend(String),
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    path: Vec<String>,
    /// `None` asks whether the field is there.
    compare: Option<(String, Value)>,
}

impl FullPath {
    pub fn parse(text: &str) -> Option<FullPath> {
        let text = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = if let Some(after) = rest.strip_prefix("..") {
                let (name, after) = split_name(after);
                (Step::Descend(name), after)
            } else if let Some(after) = rest.strip_prefix('.') {
                if let Some(after) = after.strip_prefix('*') {
                    (Step::All, after)
                } else if after.starts_with('[') {
                    rest = after;
                    continue;
                } else {
                    let (name, after) = split_name(after);
                    if name.is_empty() {
                        return after.is_empty().then_some(FullPath(steps));
                    }
                    (Step::Name(name), after)
                }
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after)?;
                (bracket(&after[..end])?, &after[end + 1..])
            } else if steps.is_empty() {
                let (name, after) = split_name(rest);
                (Step::Name(name), after)
            } else {
                return None;
            };
            steps.push(step);
            rest = after;
        }
        Some(FullPath(steps))
    }

    /// All values that the path leads to.
    pub fn find<'v>(&self, object: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

impl Step {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Step::Name(name), value) => value.get(name).into_iter().collect(),
            (Step::All, Value::Array(items)) => items.iter().collect(),
            (Step::All, Value::Object(map)) => map.values().collect(),
            (Step::Index(index), Value::Array(items)) => at(items, *index).into_iter().collect(),
            (Step::Slice(from, to), Value::Array(items)) => {
                let place = |index: i64| {
                    let index = if index < 0 { items.len() as i64 + index } else { index };
                    index.clamp(0, items.len() as i64) as usize
                };
                let (from, to) = (from.map_or(0, place), to.map_or(items.len(), place));
                items.get(from..to.max(from)).unwrap_or_default().iter().collect()
            }
            (Step::Filter(filter), Value::Array(items)) => items.iter().filter(|item| filter.holds(item)).collect(),
            (Step::Descend(name), value) => {
                let mut found = Vec::new();
                descend(value, name, &mut found);
                found
            }
            _ => Vec::new(),
        }
    }
}

impl Filter {
    fn parse(text: &str) -> Option<Filter> {
        let text = text.trim();
        for operator in ["==", "!=", "<=", ">=", "<", ">"] {
            if let Some((left, right)) = text.split_once(operator) {
                return Some(Filter {
                    path: field_path(left)?,
                    compare: Some((operator.to_owned(), literal(right.trim())?)),
                });
            }
        }
        Some(Filter {
            path: field_path(text)?,
            compare: None,
        })
    }

    fn holds(&self, item: &Value) -> bool {
        let found = self.path.iter().try_fold(item, |value, name| value.get(name));
        match (&self.compare, found) {
            (None, found) => found.is_some(),
            (Some(_), None) => false,
            (Some((operator, wanted)), Some(found)) => match operator.as_str() {
                "==" => same(found, wanted),
                "!=" => !same(found, wanted),
                order => match (found.as_f64(), wanted.as_f64()) {
                    (Some(found), Some(wanted)) => match order {
                        "<" => found < wanted,
                        "<=" => found <= wanted,
                        ">" => found > wanted,
                        _ => found >= wanted,
                    },
                    _ => false,
                },
            },
        }
    }
}

fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn field_path(text: &str) -> Option<Vec<String>> {
    let rest = text.trim().strip_prefix('@')?;
    let mut names = Vec::new();
    let FullPath(steps) = FullPath::parse(if rest.is_empty() { "." } else { rest })?;
    for step in steps {
        match step {
            Step::Name(name) => names.push(name),
            _ => return None,
        }
    }
    Some(names)
}

fn literal(text: &str) -> Option<Value> {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match quoted('\'').or_else(|| quoted('"')) {
        Some(text) => Some(text.into()),
        None => serde_json::from_str(text).ok(),
    }
}

/// A name, where a backslash makes the next character part of it.
fn split_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, next)| next)),
            '.' | '[' => return (name, &text[position..]),
            other => name.push(other),
        }
    }
    (name, "")
}

/// The bracket that closes what was opened before the text.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (position, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), character) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[' | '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ']') if depth == 0 => return Some(position),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return Filter::parse(filter).map(Step::Filter);
    }
    if let Some(Value::String(name)) = literal(text) {
        return Some(Step::Name(name));
    }
    if let Some((from, to)) = text.split_once(':') {
        let number = |text: &str| match text.trim() {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        };
        return Some(Step::Slice(number(from)?, number(to)?));
    }
    text.parse().ok().map(Step::Index)
}

fn at(items: &[Value], index: i64) -> Option<&Value> {
    let index = if index < 0 { items.len() as i64 + index } else { index };
    items.get(usize::try_from(index).ok()?)
}

fn descend<'v>(value: &'v Value, name: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key == name || name.is_empty() || name == "*" {
                    found.push(value);
                }
                descend(value, name, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| descend(item, name, found)),
        _ => {}
    }
}
