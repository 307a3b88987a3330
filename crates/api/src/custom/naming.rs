//! Which names a definition gets, and what its conditions say of it.

use serde_json::json;

use super::structural::texts;
use crate::{Fields, Value, conditions};

/// Who approved a definition in one of the project's own groups.
pub const APPROVAL: &str = "api-approved.kubernetes.io";

/// The status a definition should have beside the others of its group; `None` when it has it already.
pub fn status<'a>(definition: &Value, others: impl IntoIterator<Item = &'a Value>, now: &str) -> Option<Value> {
    let mut wanted = definition.clone();
    let conflict = accept_names(&mut wanted, others);
    let names_accepted = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, name)) => ("False", *reason, format!("{name:?} is already in use")),
    };
    set_condition(&mut wanted, "NamesAccepted", names_accepted, now);
    if !is_true(definition, "Established") {
        let established = match conflict {
            None => (
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted".to_owned(),
            ),
            Some(_) => ("False", "NotAccepted", "not all names are accepted".to_owned()),
        };
        set_condition(&mut wanted, "Established", established, now);
    }
    if let Some(approval) = approval(definition) {
        set_condition(&mut wanted, "KubernetesAPIApprovalPolicyConformant", approval, now);
    }
    (wanted["status"] != definition["status"]).then(|| wanted["status"].take())
}

/// The status with one condition changed.
pub fn with_condition(definition: &Value, kind: &str, state: &str, reason: &str, message: &str, now: &str) -> Value {
    let mut wanted = definition.clone();
    set_condition(&mut wanted, kind, (state, reason, message.to_owned()), now);
    wanted["status"].take()
}

pub fn is_true(definition: &Value, kind: &str) -> bool {
    conditions::condition(definition, kind).is_some_and(|condition| condition.text("status") == "True")
}

/// Accepts the names that nobody else in the group has; returns the first that somebody has.
fn accept_names<'a>(
    definition: &mut Value,
    others: impl IntoIterator<Item = &'a Value>,
) -> Option<(&'static str, String)> {
    let wanted = definition["spec"]["names"].clone();
    let used = used_names(others);
    let accepted = definition.ensure("status").ensure("acceptedNames");
    let mut conflict = None;
    let mut clash = |reason, name: &str| {
        conflict.get_or_insert_with(|| (reason, name.to_owned()));
    };
    for (field, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ] {
        let name = wanted.text(field);
        let taken = match field {
            "kind" | "listKind" => &used.kinds,
            _ => &used.resources,
        };
        match taken.iter().any(|used| used == name) && !name.is_empty() {
            true => clash(reason, name),
            false => accepted.set(field, name),
        }
    }
    let short_names = texts(&wanted, "shortNames");
    match short_names.iter().find(|name| used.resources.contains(name)) {
        Some(name) => clash("ShortNamesConflict", name),
        None => set_list(accepted, "shortNames", short_names),
    }
    set_list(accepted, "categories", texts(&wanted, "categories"));
    conflict
}

fn set_list(names: &mut Value, field: &str, list: Vec<String>) {
    match list.is_empty() {
        true => drop(names.remove(field)),
        false => names.set(field, list),
    }
}

#[derive(Default)]
struct UsedNames {
    resources: Vec<String>,
    kinds: Vec<String>,
}

fn used_names<'a>(others: impl IntoIterator<Item = &'a Value>) -> UsedNames {
    let mut used = UsedNames::default();
    for names in others.into_iter().map(|other| &other["status"]["acceptedNames"]) {
        for field in ["plural", "singular"] {
            used.resources.extend(names[field].as_str().map(str::to_owned));
        }
        used.resources.extend(texts(names, "shortNames"));
        for field in ["kind", "listKind"] {
            used.kinds.extend(names[field].as_str().map(str::to_owned));
        }
    }
    used.resources.retain(|name| !name.is_empty());
    used.kinds.retain(|name| !name.is_empty());
    used
}

/// Why a new definition may not be in its group: nobody approved it, and it does not say that it is unapproved.
pub fn unapproved(definition: &Value) -> Option<(&'static str, String)> {
    let (_, reason, message) = approval(definition)?;
    matches!(reason, "MissingAnnotation" | "InvalidAnnotation").then_some((reason, message))
}

/// Definitions in the project's own groups say who approved them.
fn approval(definition: &Value) -> Option<(&'static str, &'static str, String)> {
    let group = definition["spec"].text("group");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !protected {
        return None;
    }
    let annotation = definition["metadata"]["annotations"].text(APPROVAL);
    Some(match annotation {
        "" => (
            "False",
            "MissingAnnotation",
            format!(
                "protected groups must have approval annotation {APPROVAL:?}, see \
                 https://github.com/kubernetes/enhancements/pull/1111"
            ),
        ),
        text if text.starts_with("unapproved") => ("False", "UnapprovedAnnotation", format!("not approved: {text:?}")),
        text if text.starts_with("https://") || text.starts_with("http://") => {
            ("True", "ApprovedAnnotation", format!("approved in {text}"))
        }
        _ => (
            "False",
            "InvalidAnnotation",
            format!(
                "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting \
                 with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        ),
    })
}

fn set_condition(definition: &mut Value, kind: &str, (state, reason, message): (&str, &str, String), now: &str) {
    let condition = json!({ "type": kind, "status": state, "reason": reason, "message": message });
    conditions::set_condition(definition, condition, now);
}
