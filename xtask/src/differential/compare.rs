//! What two answers differ in, once everything is blanked that no two servers have in common.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::play::Answer;

/// Identifiers, times and names.
static RANDOM: LazyLock<Regex> = LazyLock::new(|| {
    let uid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    let time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z";
    // The volume that holds a service account's token is named at random.
    let revision = r#"in record \(\d+\)|"10\.96\.\d+\.\d+": expected"#;
    pattern(&format!("{uid}|{time}|{revision}|kube-api-access-[a-z0-9]{{5}}"))
});

/// Upstream shows a struct with the names of its code, which are not the API's, and an empty one as `null` or not.
static STRUCT: LazyLock<Regex> = LazyLock::new(|| pattern(r#": (\[?\{.*\}\]?|"\{.*\}"|null)(: |$)"#));

/// What was made from a `generateName` of a case.
static GENERATED: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b([Mm]ade[-_])[a-z0-9]{5}"));

/// Fields that servers choose.
const CHOSEN: &[&str] = &[
    "clusterIP",
    "clusterIPs",
    "continue",
    "healthCheckNodePort",
    "nodePort",
    "remainingItemCount",
    "resourceVersion",
    "token",
    "uid",
];

/// Columns that tell the time, and those that show what servers choose.
const MOVING: &[&str] = &["Age", "Cluster-IP", "Created At", "First Seen", "Last Seen", "Port(s)"];

/// A line that only one side has, or the order in which both have the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Upstream(String),
    Karve(String),
    /// Upstream's order of what both have.
    Order(String),
}

pub fn compare(upstream: &Answer, karve: &Answer) -> Vec<Difference> {
    let (theirs, ours) = (lines(upstream), lines(karve));
    if theirs == ours {
        return Vec::new();
    }
    let lacking = |has: &[String], of: &[String]| -> Vec<String> {
        of.iter().filter(|line| !has.contains(line)).cloned().collect()
    };
    let mut found: Vec<Difference> = lacking(&ours, &theirs).into_iter().map(Difference::Upstream).collect();
    found.extend(lacking(&theirs, &ours).into_iter().map(Difference::Karve));
    if found.is_empty() {
        found.push(Difference::Order(theirs.join(" | ")));
    }
    found
}

impl std::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Upstream(line) => write!(formatter, "upstream {line}"),
            Self::Karve(line) => write!(formatter, "karve    {line}"),
            Self::Order(lines) => write!(formatter, "order    {lines}"),
        }
    }
}

fn lines(answer: &Answer) -> Vec<String> {
    let mut lines = vec![format!("code {}", answer.code)];
    lines.extend(
        answer
            .warnings
            .iter()
            .map(|warning| format!("warning {}", plain(warning))),
    );
    let mut body = answer.body.clone();
    if body["kind"] == "Status" && body["status"] == "Failure" {
        refusal(&body, &mut lines);
    } else {
        blank(&mut body);
        leaves(&body, "", &mut lines);
    }
    lines
}

/// The causes tell what the message repeats.
fn refusal(status: &Value, lines: &mut Vec<String>) {
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    lines.push(format!("reason {}", text(&status["reason"])));
    let details = &status["details"];
    for field in ["name", "group", "kind", "retryAfterSeconds"] {
        if !details[field].is_null() {
            lines.push(format!("details.{field} {}", plain(&details[field].to_string())));
        }
    }
    let causes = details["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let message = text(&status["message"]);
    match message.split_once(" is invalid: ") {
        Some((whose, _)) if !causes.is_empty() => lines.push(format!("message {whose} is invalid")),
        _ => lines.push(format!("message {}", STRUCT.replace(&message, ": …$2"))),
    }
    for cause in causes {
        let message = text(&cause["message"]);
        let message = STRUCT.replace(&message, ": …$2");
        lines.push(format!(
            "{} {message} ({})",
            text(&cause["field"]),
            text(&cause["reason"])
        ));
    }
}

/// Of a text of several lines the first: upstream shows changed structs of its code in the others.
fn plain(text: &str) -> String {
    let first = text.split('\n').next().unwrap_or_default();
    GENERATED
        .replace_all(&RANDOM.replace_all(first, "~"), "$1~")
        .into_owned()
}

/// Replaces what servers choose, wherever it stands.
fn blank(value: &mut Value) {
    if value["kind"] == "Table" {
        blank_table(value);
    }
    let generated = value["generateName"].is_string();
    // Managers stand in the order of seconds in which they wrote.
    if let Some(Value::Array(managers)) = value.get_mut("managedFields") {
        let key = |entry: &Value| ["manager", "operation", "subresource"].map(|field| entry[field].to_string());
        managers.sort_by_key(key);
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let chosen = CHOSEN.contains(&name.as_str()) && value != "" && value != "None" && value != "0";
                if chosen || (generated && name == "name") {
                    *value = "~".into();
                } else {
                    blank(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(blank),
        Value::String(text) => *text = plain(text),
        _ => {}
    }
}

fn blank_table(table: &mut Value) {
    let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let moving: Vec<usize> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column["name"].as_str().is_some_and(|name| MOVING.contains(&name)))
        .map(|(place, _)| place)
        .collect();
    for column in table["columnDefinitions"].as_array_mut().into_iter().flatten() {
        // The words that explain a column are our own.
        if let Some(column) = column.as_object_mut() {
            column.remove("description");
        }
    }
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        for place in &moving {
            if let Some(cell) = row["cells"].get_mut(*place).filter(|cell| !cell.is_null()) {
                *cell = "~".into();
            }
        }
    }
}

fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                leaves(value, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.iter().enumerate() {
                let place = match path {
                    ".items" | ".rows" => item_name(value).unwrap_or_else(|| index.to_string()),
                    _ => index.to_string(),
                };
                leaves(value, &format!("{path}[{place}]"), found);
            }
        }
        leaf => found.push(format!("{path} {leaf}")),
    }
}

/// Objects of a list are told apart by their names: one more of them does not move the others.
fn item_name(item: &Value) -> Option<String> {
    let metadata = [&item["metadata"], &item["object"]["metadata"]];
    let metadata = metadata.into_iter().find(|metadata| metadata.is_object())?;
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let name = match (text("namespace"), text("name")) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    (!name.is_empty()).then_some(name)
}

#[expect(clippy::panic, reason = "the patterns are constants, and the tests use all of them")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(body: Value) -> Answer {
        Answer {
            code: 200,
            warnings: Vec::new(),
            body,
        }
    }

    fn shown(upstream: Value, karve: Value) -> Vec<String> {
        compare(&answer(upstream), &answer(karve))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_servers_choose_is_not_compared() {
        let object = |uid: &str, replicas: i64| json!({"metadata": {"uid": uid, "resourceVersion": uid}, "spec": {"replicas": replicas}});
        assert!(shown(object("1", 1), object("2", 1)).is_empty());
        assert_eq!(
            shown(object("1", 1), object("1", 2)),
            ["upstream .spec.replicas 1", "karve    .spec.replicas 2"]
        );
    }

    #[test]
    fn refusals_are_compared_by_their_causes_and_these_by_their_order() {
        let refusal = |fields: &[&str]| {
            let causes: Vec<Value> = fields
                .iter()
                .map(|field| json!({"field": field, "message": "Invalid value: {\"a\":1}: no", "reason": "r"}))
                .collect();
            json!({
                "kind": "Status", "status": "Failure", "reason": "Invalid", "message": "x is invalid: …",
                "details": {"causes": causes},
            })
        };
        assert!(shown(refusal(&["a"]), refusal(&["a"])).is_empty());
        assert_eq!(
            shown(refusal(&["a"]), refusal(&["b"])),
            [
                "upstream a Invalid value: …: no (r)",
                "karve    b Invalid value: …: no (r)"
            ]
        );
        let order = shown(refusal(&["a", "b"]), refusal(&["b", "a"]));
        assert!(order[0].starts_with("order"), "{order:?}");
    }
}
