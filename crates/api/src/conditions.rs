//! The conditions of an object's status.

use crate::{Fields, Path, Problems, Value, repeats};

/// Sets the condition of this one's type. It tells since when its status is what it is: from `now` on where that is new,
/// and for as long as before where only its reason or message are.
pub fn set_condition(object: &mut Value, mut condition: Value, now: &str) {
    let status = object.ensure("status");
    if !status["conditions"].is_array() {
        status.set("conditions", Vec::<Value>::new());
    }
    let Some(conditions) = status["conditions"].as_array_mut() else {
        return;
    };
    let known = conditions.iter_mut().find(|known| known["type"] == condition["type"]);
    let since = known.as_ref().filter(|known| known["status"] == condition["status"]);
    let since = since.map_or(Value::Null, |known| known["lastTransitionTime"].clone());
    condition["lastTransitionTime"] = if since.is_null() { now.into() } else { since };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// The condition of a type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object["status"].list("conditions").iter();
    conditions.find(|condition| condition.text("type") == kind)
}

/// Whether a condition is there and says what another says, whatever the time.
pub fn has_condition(object: &Value, wanted: &Value) -> bool {
    let says = |found: &Value| {
        wanted
            .as_object()
            .is_some_and(|wanted| wanted.iter().all(|(key, value)| found[key] == *value))
    };
    condition(object, wanted.text("type")).is_some_and(says)
}

/// What is wrong with a list of conditions: each has a type, and no two have the same.
pub fn validate_types(status: &Value, path: &Path, problems: &mut Problems) {
    let conditions = status.list("conditions");
    let repeated = repeats(conditions.iter().map(|condition| condition.text("type")));
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.child("conditions").index(index);
        problems.needs(condition, &path, "type");
        let kind = condition.text("type");
        if repeated[index] {
            problems.duplicate(&path, "type", kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_keeps_its_place_and_its_time_while_its_status_stays() {
        let mut object = json!({"status": {"conditions": [
            {"type": "A", "status": "True", "lastTransitionTime": "then"},
            {"type": "B", "status": "True", "lastTransitionTime": "then"},
        ]}});
        set_condition(
            &mut object,
            json!({"type": "A", "status": "True", "reason": "R"}),
            "now",
        );
        set_condition(&mut object, json!({"type": "B", "status": "False"}), "now");
        set_condition(&mut object, json!({"type": "C", "status": "False"}), "now");
        let wanted = json!([
            {"type": "A", "status": "True", "reason": "R", "lastTransitionTime": "then"},
            {"type": "B", "status": "False", "lastTransitionTime": "now"},
            {"type": "C", "status": "False", "lastTransitionTime": "now"},
        ]);
        assert_eq!(object["status"]["conditions"], wanted);
        assert!(has_condition(&object, &json!({"type": "A", "reason": "R"})));
        assert!(!has_condition(&object, &json!({"type": "A", "reason": "Q"})));
    }

    #[test]
    fn a_condition_has_a_type_of_its_own() {
        let mut problems = Problems::default();
        let status = json!({"conditions": [{"type": "A"}, {"type": "A"}, {}]});
        validate_types(&status, &Path::new("status"), &mut problems);
        let found: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                r#"status.conditions[1].type: Duplicate value: "A""#,
                "status.conditions[2].type: Required value",
            ]
        );
    }
}
