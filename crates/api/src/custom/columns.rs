//! The columns that a definition gives the table of its objects.

use serde_json::json;

use super::jsonpath::FullPath;
use crate::print;
use crate::{Fields, Value};

/// The columns of a version: NAME, and its own or AGE.
#[derive(Clone, Debug)]
pub struct Printed {
    columns: Vec<Own>,
}

#[derive(Clone, Debug)]
struct Own {
    /// The column as `columnDefinitions` shows it.
    definition: Value,
    kind: String,
    path: Option<FullPath>,
}

impl Printed {
    pub fn parse(columns: &[Value]) -> Printed {
        let age = json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "When the server stored the object; a time of the server's, not ordered between servers.",
        });
        let own = if columns.is_empty() {
            std::slice::from_ref(&age)
        } else {
            columns
        };
        Printed {
            columns: own.iter().map(Own::parse).collect(),
        }
    }

    pub fn definitions(&self) -> Vec<Value> {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name must be unique within a namespace.",
        });
        let own = self.columns.iter().map(|column| column.definition.clone());
        std::iter::once(name).chain(own).collect()
    }

    pub fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        let own = self.columns.iter().map(|column| column.cell(object, now));
        std::iter::once(print::name(object)).chain(own).collect()
    }
}

impl Own {
    fn parse(column: &Value) -> Own {
        let path = column.text("jsonPath");
        let description = match column.text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            text => text.to_owned(),
        };
        Own {
            definition: json!({
                "name": column.text("name"), "type": column.text("type"), "format": column.text("format"),
                "description": description, "priority": column.number("priority"),
            }),
            kind: column.text("type").to_owned(),
            path: FullPath::parse(path),
        }
    }

    fn cell(&self, object: &Value, now: i64) -> Value {
        let found = self.path.as_ref().map(|path| path.find(object)).unwrap_or_default();
        let Some(first) = found.first() else {
            return Value::Null;
        };
        match (self.kind.as_str(), first) {
            ("string", value) => shown(value).into(),
            ("integer", value) => value
                .as_i64()
                .or_else(|| value.as_f64().map(|number| number as i64))
                .map_or(Value::Null, Value::from),
            ("number", value) if value.is_number() => (*value).clone(),
            ("boolean", Value::Bool(value)) => (*value).into(),
            ("date", value @ Value::String(_)) => match print::seconds(value) {
                Some(_) => print::since(value, now).into(),
                None => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

/// A value as text: strings bare, everything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
