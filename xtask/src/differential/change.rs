//! Changes of an object as one writes them in a case: `spec.ports[0].port = 0; -spec.type`.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// One step of the way to a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Field(String),
    Item(usize),
}

/// Sets the field at a path, or removes it when there is no value.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub path: Vec<Step>,
    pub value: Option<Value>,
}

/// Reads changes separated by `;`. A value is JSON, so that a `;` inside of a text separates nothing.
pub fn parse(text: &str) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (change, after) = parse_one(rest).with_context(|| format!("cannot read {rest:?}"))?;
        changes.push(change);
        rest = after.trim_start();
        if let Some(after) = rest.strip_prefix(';') {
            rest = after.trim_start();
        } else {
            ensure!(rest.is_empty(), "{rest:?} follows a change without `;`");
        }
    }
    Ok(changes)
}

fn parse_one(text: &str) -> Result<(Change, &str)> {
    if let Some(removed) = text.strip_prefix('-') {
        let (path, rest) = parse_path(removed)?;
        return Ok((Change { path, value: None }, rest));
    }
    let (path, rest) = parse_path(text)?;
    let rest = rest.trim_start().strip_prefix('=').context("a path, `=` and a value")?;
    let (value, rest) = parse_value(rest.trim_start(), ';')?;
    let change = Change {
        path,
        value: Some(value),
    };
    Ok((change, rest))
}

/// A JSON value; one that is neither text, list nor struct reaches to `end`.
fn parse_value(text: &str, end: char) -> Result<(Value, &str)> {
    if text.starts_with(['"', '[', '{']) {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let value = values.next().context("there is no value")??;
        return Ok((value, &text[values.byte_offset()..]));
    }
    let length = text.find(end).unwrap_or(text.len());
    Ok((serde_json::from_str(text[..length].trim())?, &text[length..]))
}

/// `a.b[0]["c.d/e"]`
fn parse_path(text: &str) -> Result<(Vec<Step>, &str)> {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        if let Some(inside) = rest.strip_prefix('[') {
            let (key, after) = parse_value(inside, ']')?;
            match key {
                Value::String(key) => path.push(Step::Field(key)),
                Value::Number(index) => path.push(Step::Item(index.as_u64().context("an index")?.try_into()?)),
                other => bail!("{other} is neither index nor key"),
            }
            rest = after.strip_prefix(']').context("no ]")?;
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest.find(['.', '[', ' ', '=', ';']).unwrap_or(rest.len());
            ensure!(end > 0, "a name is missing");
            path.push(Step::Field(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        if !rest.starts_with(['.', '[']) {
            return Ok((path, rest));
        }
    }
}

/// Applies all of them; what is missing on the way is made.
pub fn apply(changes: &[Change], object: &mut Value) {
    for change in changes {
        change_at(object, &change.path, change.value.as_ref());
    }
}

fn change_at(at: &mut Value, path: &[Step], value: Option<&Value>) {
    match path {
        [] => {
            if let Some(value) = value {
                *at = value.clone();
            }
        }
        [Step::Field(name), rest @ ..] => {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            let Value::Object(fields) = at else { return };
            if rest.is_empty() && value.is_none() {
                fields.remove(name);
            } else {
                change_at(fields.entry(name.as_str()).or_insert(Value::Null), rest, value);
            }
        }
        [Step::Item(index), rest @ ..] => {
            if !at.is_array() {
                *at = Value::Array(Vec::new());
            }
            let Value::Array(items) = at else { return };
            if rest.is_empty() && value.is_none() {
                if *index < items.len() {
                    items.remove(*index);
                }
                return;
            }
            while items.len() <= *index {
                items.push(Value::Null);
            }
            change_at(&mut items[*index], rest, value);
        }
    }
}

/// The path as a case writes it.
pub fn show(path: &[Step]) -> String {
    let mut shown = String::new();
    for step in path {
        match step {
            Step::Item(index) => shown += &format!("[{index}]"),
            Step::Field(name) if name.contains(['.', '/', ' ', '[', '=', ';']) => shown += &format!("[{name:?}]"),
            Step::Field(name) if shown.is_empty() => shown += name,
            Step::Field(name) => shown += &format!(".{name}"),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_set_make_and_remove() {
        let mut object = json!({"spec": {"ports": [{"port": 1}], "type": "x"}});
        let changes = parse(r#"spec.ports[1].port = 2; -spec.type; metadata.labels["a.b/c"] = "d; e"; -spec.ports[0]"#);
        apply(&changes.unwrap(), &mut object);
        let expected = json!({"spec": {"ports": [{"port": 2}]}, "metadata": {"labels": {"a.b/c": "d; e"}}});
        assert_eq!(object, expected);
    }

    #[test]
    fn paths_are_shown_as_they_are_read() {
        let text = r#"metadata.labels["a.b/c"][0].x"#;
        assert_eq!(show(&parse(&format!("-{text}")).unwrap()[0].path), text);
        for broken in ["spec", "spec = ", "spec. = 1", "spec[x] = 1", "a = 1 b = 2"] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }
}
