use expect_test::expect;
use serde_json::json;

use super::*;

fn schema(rules: Json) -> Json {
    json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer"}, "max-replicas": {"type": "integer"}, "name": {"type": "string"},
            "ratio": {"type": "number"},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "self.port >= oldSelf.port", "message": "ports only grow"}],
                },
            },
        },
        "x-kubernetes-validations": rules,
    }}})
}

fn check(rules: Json, value: Json, old: Option<Json>) -> Vec<String> {
    let validator = Validator::compile(&schema(rules)).unwrap().unwrap();
    let failures = validator.validate(&value, old.as_ref());
    let shown = failures.iter().map(|failure| {
        format!(
            "{} ({}, {}): {}",
            failure.path, failure.shown, failure.reason, failure.detail
        )
    });
    shown.collect()
}

#[test]
fn rules_look_at_their_part_of_the_object() {
    let rule = json!([{"rule": "self.replicas <= self.max__dash__replicas"}]);
    assert!(check(rule.clone(), json!({"spec": {"replicas": 1, "max-replicas": 2}}), None).is_empty());
    expect!["spec (object, FieldValueInvalid): failed rule: self.replicas <= self.max__dash__replicas"]
        .assert_eq(&check(rule.clone(), json!({"spec": {"replicas": 3, "max-replicas": 2}}), None).join("\n"));
    expect!["spec (object, FieldValueInvalid): no such key: max__dash__replicas evaluating rule: self.replicas <= self.max__dash__replicas"]
        .assert_eq(&check(rule, json!({"spec": {"replicas": 3}}), None).join("\n"));
}

#[test]
fn messages_reasons_and_paths_are_the_rules_own() {
    let rule = json!([{
        "rule": "self.ratio < 1.0", "messageExpression": "'ratio ' + string(self.ratio) + ' is too much'",
        "reason": "FieldValueForbidden", "fieldPath": ".ratio",
    }]);
    expect!["spec.ratio (object, FieldValueForbidden): ratio 2 is too much"]
        .assert_eq(&check(rule, json!({"spec": {"ratio": 2}}), None).join("\n"));
}

#[test]
fn rules_about_changes_need_something_that_changed() {
    let rule = json!([{"rule": "self.name == oldSelf.name", "message": "the name stays"}]);
    let named = |name: &str| json!({"spec": {"name": name}});
    assert!(check(rule.clone(), named("a"), None).is_empty());
    assert!(check(rule.clone(), named("a"), Some(named("a"))).is_empty());
    assert_eq!(
        check(rule, named("b"), Some(named("a"))),
        ["spec (object, FieldValueInvalid): the name stays"]
    );

    let optional = json!([{"rule": "!oldSelf.hasValue() || self.replicas > 0", "optionalOldSelf": true}]);
    assert!(check(optional, json!({"spec": {"replicas": 0}}), None).is_empty());

    let port = |name: &str, port: i64| json!({"spec": {"ports": [{"name": name, "port": port}]}});
    assert_eq!(
        check(json!([]), port("a", 1), Some(port("a", 2))),
        ["spec.ports[0] (object, FieldValueInvalid): ports only grow"]
    );
    assert!(check(json!([]), port("b", 1), Some(port("a", 2))).is_empty());
}

#[test]
fn what_was_wrong_before_may_stay_as_it_is() {
    let rule = json!([{"rule": "self.replicas < 5"}]);
    let value = json!({"spec": {"replicas": 9}});
    assert!(check(rule.clone(), value.clone(), Some(value.clone())).is_empty());
    assert_eq!(check(rule, value, None).len(), 1);
}

#[test]
fn rules_that_cannot_work_are_refused() {
    let problems = |rules: Json| Validator::compile(&schema(rules)).unwrap_err();
    let unknown = &problems(json!([{"rule": "self.none == 1"}]))[0];
    assert_eq!(
        unknown.path,
        "openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    );
    assert!(unknown.detail.contains("undefined field 'none'"), "{}", unknown.detail);
    assert_eq!(
        problems(json!([{"rule": "self.name"}]))[0].detail,
        "cel expression must evaluate to a bool"
    );
}
