//! Whether an applied configuration fits the schema: it has only known fields, of their types, and no item twice.

use std::collections::BTreeSet;

use super::node::{Atom, Children, Inner, Items, Node, Scalar};
use super::set::Element;
use crate::Value;
use crate::go;

/// Upstream's texts for everything that does not fit.
pub fn problems_of(node: Node<'_>, value: &Value) -> Vec<String> {
    let mut checker = Checker { problems: Vec::new() };
    checker.value(node, value, "");
    checker.problems
}

/// The problems as one text.
pub fn joined(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

struct Checker {
    problems: Vec<String>,
}

impl Checker {
    fn report(&mut self, path: &str, problem: &str) {
        self.problems.push(match path {
            "" => problem.to_owned(),
            path => format!("{path}: {problem}"),
        });
    }

    fn value(&mut self, node: Node<'_>, value: &Value, path: &str) {
        match node.atom(value) {
            _ if value.is_null() => {}
            Atom::Scalar(scalar) => self.scalar(scalar, value, path),
            Atom::Map(children) | Atom::Whole(Inner::Map(children)) => self.map(children, value, path),
            Atom::List(items) => self.items(items, value, path),
            Atom::Whole(Inner::List(item)) => match value {
                Value::Array(list) => {
                    for (index, value) in list.iter().enumerate() {
                        self.value(item, value, &format!("{path}[{index}]"));
                    }
                }
                other => self.report(path, &format!("expected list, got &{{{}}}", go::value_text(other))),
            },
            Atom::Whole(Inner::Any) => {}
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value, path: &str) {
        let fits = match scalar {
            Scalar::Numeric => value.is_number(),
            Scalar::String => value.is_string(),
            Scalar::Boolean => value.is_boolean(),
            Scalar::Untyped => !value.is_object() && !value.is_array(),
        };
        if fits {
            return;
        }
        let problem = match scalar {
            Scalar::Numeric => format!("expected numeric (int or float), got {}", go_type(value)),
            Scalar::String => format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                go_syntax(value)
            ),
            Scalar::Boolean => format!("expected boolean, got &{{{}}}", go::value_text(value)),
            Scalar::Untyped => format!("expected any scalar, got &{{{}}}", go::value_text(value)),
        };
        self.report(path, &problem);
    }

    fn map(&mut self, children: Children<'_>, value: &Value, path: &str) {
        let Value::Object(map) = value else {
            return self.report(path, &format!("expected map, got &{{{}}}", go::value_text(value)));
        };
        for (key, value) in map {
            let path = format!("{path}.{key}");
            match children.get(key) {
                Some((node, _)) => self.value(node, value, &path),
                None => self.report(&path, "field not declared in schema"),
            }
        }
    }

    fn items(&mut self, items: Items<'_>, value: &Value, path: &str) {
        let Value::Array(list) = value else {
            return self.report(path, &format!("expected list, got &{{{}}}", go::value_text(value)));
        };
        let mut seen: BTreeSet<Element<'_>> = BTreeSet::new();
        for (index, item) in list.iter().enumerate() {
            let Some(element) = items.element(item) else {
                let keys: Vec<String> = items.key_names().iter().map(|name| go::quote(name)).collect();
                let problem = format!(
                    "element {index}: associative list with keys has an element that omits all key fields [{}] (and \
                     doesn't have default values for any key fields)",
                    keys.join(" ")
                );
                return self.report(path, &problem);
            };
            if seen.contains(&element) {
                self.report(path, &format!("duplicate entries for key {}", element.shown()));
            }
            self.value(items.item, item, &format!("{path}{}", element.shown()));
            seen.insert(element);
        }
    }
}

/// The type that Go's JSON reader gives a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value in Go's own notation.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::String(text) => go::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}:{}", go::quote(key), go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        scalar => scalar.to_string(),
    }
}
