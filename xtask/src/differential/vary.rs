//! Cases that nobody has to write: what every object is asked for, and every field of a base removed, emptied, of
//! another type, out of range, and changed afterwards.

use serde_json::{Value, json};

use super::cases::{Action, Case, Request};
use super::change::{self, Change, Step};

/// How objects are asked for: as they are, as kubectl prints them, and by their metadata.
const FORMS: &[&str] = &[
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
];

/// Reads of one path in every form.
pub fn reads(path: &str) -> Vec<Case> {
    FORMS
        .iter()
        .map(|accept| Case {
            title: format!("GET {path} accept={accept}"),
            action: Action::Send(Request {
                method: "GET".to_owned(),
                path: path.to_owned(),
                accept: (*accept).to_owned(),
                ..Request::default()
            }),
        })
        .collect()
}

/// Variations of a new object.
pub fn creates(base: &Value) -> Vec<Case> {
    each_field(base, &broken, Action::Create)
}

/// Variations of a stored object.
pub fn updates(base: &Value) -> Vec<Case> {
    each_field(base, &changed, |changes| Action::Put {
        subresource: String::new(),
        changes,
    })
}

fn each_field(base: &Value, vary: &dyn Fn(&Value) -> Vec<Value>, action: impl Fn(Vec<Change>) -> Action) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |path: &[Step], value: Option<Value>| {
        let change = Change {
            path: path.to_owned(),
            value,
        };
        let action = action(vec![change.clone()]);
        let verb = match action {
            Action::Create(_) => "create",
            _ => "update",
        };
        let shown = change::show(path);
        let title = match &change.value {
            Some(value) => format!("{verb} {shown} = {value}"),
            None => format!("{verb} -{shown}"),
        };
        cases.push(Case { title, action });
    };
    walk(base, &mut Vec::new(), &mut |path, value| {
        add(path, None);
        for variation in vary(value) {
            add(path, Some(variation));
        }
    });
    cases
}

/// Every field below, its struct first. What names the object stays.
fn walk(value: &Value, path: &mut Vec<Step>, visit: &mut dyn FnMut(&[Step], &Value)) {
    let below: Vec<(Step, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (Step::Field(name.clone()), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (Step::Item(index), value))
            .collect(),
        _ => Vec::new(),
    };
    for (step, value) in below {
        path.push(step);
        let shown = change::show(path);
        if !["apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace"].contains(&shown.as_str()) {
            visit(path, value);
        }
        if !["apiVersion", "kind"].contains(&shown.as_str()) {
            walk(value, path, visit);
        }
        path.pop();
    }
}

fn broken(value: &Value) -> Vec<Value> {
    match value {
        Value::String(_) => vec![json!(""), json!("Bad Value!"), json!(7)],
        Value::Number(_) => vec![json!(0), json!(-1), json!(70000), json!("x")],
        Value::Bool(flag) => vec![json!(!flag), json!("x")],
        Value::Array(items) => {
            let twice: Vec<Value> = items.iter().chain(items.first()).cloned().collect();
            vec![json!([]), twice.into(), json!("x")]
        }
        Value::Object(_) => vec![json!({}), json!("x")],
        Value::Null => Vec::new(),
    }
}

fn changed(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) => vec![json!(format!("{text}x"))],
        Value::Number(number) => vec![json!(number.as_i64().unwrap_or_default() + 1)],
        Value::Bool(flag) => vec![json!(!flag)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_varied() {
        let base = json!({"kind": "Thing", "metadata": {"name": "base"}, "spec": {"on": true}});
        let titles: Vec<String> = creates(&base).into_iter().map(|case| case.title).collect();
        assert_eq!(
            titles,
            [
                "create -spec",
                "create spec = {}",
                "create spec = \"x\"",
                "create -spec.on",
                "create spec.on = false",
                "create spec.on = \"x\"",
            ]
        );
        let titles: Vec<String> = updates(&base).into_iter().map(|case| case.title).collect();
        assert_eq!(titles, ["update -spec", "update -spec.on", "update spec.on = false"]);
    }
}
